"""From the replies of a round to the step of the model: weights, sums, means and the server's
update, and the answers to private queries.
"""
