"""What people see. View objects hold every sentence and figure; packages lay them out."""
