"""Attention to a stream in fixed memory: the tokens that earn the least attention are dropped or merged."""
