"""Tables of grids, on which an agent moves and may slip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LEFT, DOWN, RIGHT, UP = (0, -1), (1, 0), (0, 1), (-1, 0)

Outcome = tuple[float, int, float, bool]


def grid_table(
    rows: int,
    columns: int,
    moves: tuple[tuple[int, int], ...],
    enter: Callable[[int, int], tuple[int, float, bool]],
    ends: Callable[[int, int], bool],
    slips: float | None,
) -> dict[int, dict[int, list[Outcome]]]:
    """Return the table of a grid, whose states are its cells, row by row.

    Args:
        rows: the number of rows.
        columns: the number of columns.
        moves: for each action, the change of row and column. Neighbours in this list are at right angles.
        enter: takes row and column of the next cell; returns the state, the reward, and whether the episode ends.
        ends: takes a row and a column; returns whether the cell is terminal.
        slips: the probability of each of the two moves at right angles to the one that was chosen, None for a grid
            that is not slippery.
    """

    def entered(row: int, column: int, move: tuple[int, int]) -> Any:
        return enter(
            min(max(row + move[0], 0), rows - 1), min(max(column + move[1], 0), columns - 1)
        )

    table: dict[int, dict[int, list[Outcome]]] = {}
    for row in range(rows):
        for column in range(columns):
            outcomes = table[row * columns + column] = {}
            for action, move in enumerate(moves):
                if ends(row, column):
                    outcomes[action] = [(1.0, row * columns + column, 0.0, True)]
                elif slips is None:
                    outcomes[action] = [(1.0, *entered(row, column, move))]
                else:
                    outcomes[action] = [
                        (chance, *entered(row, column, moves[(action + turn) % 4]))
                        for turn, chance in ((-1, slips), (0, 1 - 2 * slips), (1, slips))
                    ]
    return table
