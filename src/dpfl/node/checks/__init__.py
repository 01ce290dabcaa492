"""What a node checks before anything is debited: its own readiness, and every run, model and task
against its owner's policy and limits.
"""
