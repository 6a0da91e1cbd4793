"""Colours and sizes: light and dark, for a page and for a projector."""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from batchsim import _check

# Okabe and Ito's colours, which most colour-blind people can tell apart. Each also has a second
# channel: a line style, a width, a marker or a hatch.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"

LEAST_PX = 12  # the size of the smallest letters
Choice = TypeVar("Choice")


class ComponentStyle(NamedTuple):
    """How a component of the latency is drawn: a colour of the theme, a hatch, and the width of a line."""

    colour: str
    hatch: str
    width: float


# The components of a request's latency, with the same colour and hatch in all pictures.
COMPONENTS = {
    "forming": ComponentStyle("orange", "", 2.0),
    "queueing": ComponentStyle("purple", "", 4.0),
    "device_wait": ComponentStyle("sky", "..", 3.0),
    "computing": ComponentStyle("blue", "", 5.0),
}
# The phases of a request of token generation, likewise.
PHASES = {
    "waiting": ComponentStyle("purple", "\\\\", 4.0),
    "prefill": ComponentStyle("green", "..", 3.0),
    "decode": ComponentStyle("blue", "", 5.0),
    "preempted": ComponentStyle("vermilion", "xx", 2.0),
}
COMPILING = ComponentStyle("blue", "xxx", 5.0)  # the part of computing before a new shape is compiled


class Fill(NamedTuple):
    """An area: a colour of the theme ("" for none), a hatch in the colour `line`, and the width of a bar."""

    colour: str
    hatch: str
    line: str = "background"
    width: float = 5.0


# The areas of films and lanes: the components, and what happens in the seats of token generation.
FILLS = {
    **{name: Fill(style.colour, style.hatch, width=style.width) for name, style in COMPONENTS.items()},
    "compiling": Fill(COMPILING.colour, COMPILING.hatch),
    "waiting": Fill(*PHASES["waiting"][:2]),
    "prefill": Fill(PHASES["prefill"].colour, ""),
    "again": Fill(PHASES["prefill"].colour, "xxxx"),
    "decode": Fill(*PHASES["decode"][:2]),
    "padded": Fill("background", "/////", "blue"),
    "empty": Fill("", "..", "ghost"),
    "padding": Fill("background", "\\\\\\\\\\", "blue"),
}
TELLING = 0.7  # of a seat's height: prompts fill it, tokens do not
# What happens in the seats of token generation, in the order of legends.
SEATS = {
    "waiting": "waiting", "prefill": "prompt", "decode": "a token a step", "padded": "done, seat kept",
    "empty": "empty seat", "padding": "empty, computed", "again": "computed again", "preempted": "preempted",
}  # fmt: skip


def in_words(part: str) -> str:
    """Return the name of a part of a latency.

    >>> in_words("device_wait")
    'device wait'
    """
    return part.replace("_", " ")


@dataclass(frozen=True)
class Theme:
    """Colours by their purpose; those named after a colour are Okabe and Ito's."""

    background: str
    ink: str  # text, and lines that are black on paper
    soft: str  # axes and their numbers
    faint: str  # grid lines, and areas without a number
    ghost: str  # wide lines of the setting before: lighter (in the dark theme darker) than all present lines
    orange: str = ORANGE
    sky: str = SKY
    green: str = GREEN
    blue: str = BLUE
    vermilion: str = VERMILION
    purple: str = PURPLE
    grey: str = GREY

    @property
    def now(self) -> str:
        """The colour of the present setting."""
        return self.green

    @property
    def before(self) -> str:
        """The colour of the setting before the last move."""
        return self.grey

    @property
    def objective(self) -> str:
        return self.vermilion

    def rc(self, font_px: float = 12, line_px: float = 1.6) -> dict[str, Any]:
        """Return the look as matplotlib's parameters: one ladder of sizes, no frames, one quiet grid."""
        return {
            "figure.facecolor": self.background, "axes.facecolor": self.background,
            "savefig.facecolor": self.background, "legend.facecolor": self.background,
            "text.color": self.ink, "axes.titlecolor": self.ink, "axes.labelcolor": self.soft,
            "axes.edgecolor": self.ghost, "grid.color": self.faint, "legend.labelcolor": self.ink,
            "xtick.color": self.ghost, "xtick.labelcolor": self.soft, "xtick.major.size": 0.25 * font_px,
            "ytick.color": self.ghost, "ytick.labelcolor": self.soft, "ytick.left": False,
            "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
            "axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True, "grid.linewidth": 0.5 * line_px,
            "font.size": font_px, "axes.titlesize": 1.1 * font_px, "axes.labelsize": font_px,
            "xtick.labelsize": font_px, "ytick.labelsize": font_px, "legend.fontsize": font_px,
            "figure.titlesize": 1.1 * font_px, "axes.titleweight": "bold", "axes.titlelocation": "left",
            "lines.linewidth": 1.4 * line_px, "patch.linewidth": 0, "hatch.linewidth": 0.6 * line_px,
            "legend.frameon": False, "figure.constrained_layout.w_pad": 0.6 * font_px / 72,
            "figure.constrained_layout.h_pad": 0.5 * font_px / 72,
        }  # fmt: skip


LIGHT = Theme(background="#FFFFFF", ink="#1B1F24", soft="#5B626D", faint="#E4E7EB", ghost="#C3C8CF")
# Blue, green and vermilion are lightened, with the same hue, so that their lines are visible.
DARK = Theme(
    background="#111111", ink="#E8EAED", soft="#A8AFB9", faint="#2B3036", ghost="#4C535C",
    blue="#2381C5", green="#14B88A", vermilion="#EC6F14",
)  # fmt: skip
THEMES = {"light": LIGHT, "dark": DARK}


def fill_style(theme: Theme, name: str) -> dict[str, Any]:
    """Return an area's style as matplotlib's options."""
    fill = FILLS[name]
    colour = getattr(theme, fill.colour) if fill.colour else "none"
    return {"facecolor": colour, "hatch": fill.hatch, "edgecolor": getattr(theme, fill.line), "linewidth": 0}


def looks() -> dict[str, Any]:
    """Return the colours of both themes and all areas, for drawings in a browser."""
    return {name: vars(theme) for name, theme in THEMES.items()} | {
        "fills": {name: fill._asdict() for name, fill in FILLS.items()}
    }


@dataclass(frozen=True)
class Size:
    """How large letters and lines are, in CSS pixels."""

    font_px: float
    line_px: float

    def em_px(self, width_px: float) -> float:
        """Return the size of the letters in a picture of this width: up to 2 px more in a wide one.

        >>> PAGE.em_px(570), PAGE.em_px(1200)
        (12, 13.0)
        """
        return min(max(self.font_px + (width_px - 800) / 400, self.font_px), self.font_px + 2)


PAGE = Size(font_px=LEAST_PX, line_px=1.6)
PROJECTOR = Size(font_px=16, line_px=2.6)
SIZES = {"page": PAGE, "projector": PROJECTOR}


def named(parameter: str, name: str, choices: dict[str, Choice]) -> Choice:
    """Return the choice of that name, or raise ValueError with the nearest."""
    if name in choices:
        return choices[name]
    names = " or ".join(map(repr, choices))
    raise ValueError(f"{parameter} must be {names}, got {name!r}{_check.nearest(name, choices, True)}")
