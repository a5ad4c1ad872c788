"""Reference environments: those of classic control, with the dynamics of Gymnasium's.

The dynamics are from Sutton and Barto, Reinforcement Learning: An Introduction, and the sources named in each module.
"""
