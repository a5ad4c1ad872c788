"""Forms of bridges that several test files share."""

from arrayferry_audit import BridgeContract, BridgeStep


class LeavesResets(BridgeContract):
    """A vector environment that leaves the reset to the trainer."""

    def step(self, bridge, actions):
        final, reward, terminated, truncated, _ = bridge.step(actions)
        observation, ended = final, terminated | truncated
        if ended.any():
            observation, _ = bridge.reset(options={"reset_mask": ended})
        return BridgeStep(observation, reward, terminated, truncated, final)
