"""Transactions: who may write in them, how they end, and that they end everywhere."""
