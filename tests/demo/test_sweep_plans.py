"""What a file that describes a sweep stands for, and what is wrong with one."""

import pytest
from headspan.lab import TrainConfig, cli
from headspan.lab.sweep.grid import read_plan
from lm_helpers import error_of, small_text, written


def test_the_example_of_the_help_is_a_plan(folder, capsys):
    with pytest.raises(SystemExit):
        cli.main(["sweep", "--help"])
    example = capsys.readouterr().out.partition("An example of a configuration file:\n")[2]
    points = read_plan(written(folder, example)).points
    assert len(points) == 3 * 3 * 3
    assert points[2].equal_cost_to == points[0].name == "adaptive-seed0-limit256"
    model, _ = points[1].configs(small_text())
    assert (model.layers, model.span_kind, model.span_init, model.ramp) == (4, "fixed", 256, 0)


def test_a_field_that_a_kind_sets_is_no_axis_for_it(folder):
    kinds = '[[kinds]]\nname = "a"\n[[kinds]]\nname = "b"\nramp = 0\nspan_init = "span_limit"\n'
    path = written(folder, "[grid]\nramp = [2, 8]\nspan_limit = [64, 128]\n" + kinds)
    plan = read_plan(path)
    assert [point.name for point in plan.points] == [
        "a-ramp2-limit64", "b-limit64", "a-ramp2-limit128", "b-limit128", "a-ramp8-limit64", "a-ramp8-limit128",
    ]  # fmt: skip
    model, training = plan.points[3].configs(small_text())
    assert (model.ramp, model.span_init, model.span_limit, training) == (0, 128, 128, TrainConfig())
    assert plan.points[0].text is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("layers = ", "plan.toml is not valid TOML: "),
        ("[modle]", "unknown field modle; the fields are name, text, model, training, grid, kinds"),
        ("[model]\nsteps = 3", "unknown field steps of [model]; the fields are layers, heads"),
        ("[model]\nvocabulary = 3", "unknown field vocabulary of [model]"),
        ("[training]\nsteps = 'many'", "steps must be an integer, not 'many'"),
        ("[training]\nsteps = -1", "steps must be at least 0, not -1"),
        ("[model]\nramp = true", "ramp must be a number, not True"),
        ("[model]\nspan_kind = 3", "span_kind must be a string with a letter or digit, not 3"),
        ("[model]\nlayers = 2\n[grid]\nlayers = [1]", "layers is given twice, for all runs and in [grid]"),
        ("text = 'text.txt'\n[grid]\ntext = ['text.txt']", "text is given twice, for all runs and in [grid]"),
        ("[grid]\nseed = []", "seed in [grid] must be a list of one or more values, not []"),
        ("[grid]\nseed = 3", "seed in [grid] must be a list of one or more values, not 3"),
        ("[grid]\nseed = [0, 0]", "seed in [grid] must not repeat a value, got [0, 0]"),
        ("[grid]\nseed = [0, 1.5]", "seed must be an integer, not 1.5"),
        ("[grid]\nseed = [[0]]", "seed must be an integer, not [0]"),
        ("grid = 3", "grid must be a table, not 3"),
        ("kinds = []", "kinds must be tables, each under [[kinds]], not []"),
        ("[[kinds]]\nramp = 3", "each of [[kinds]] must have a name"),
        ("[[kinds]]\nname = '..'", "name must be a string with a letter or digit, not '..'"),
        ("[[kinds]]\nname = 'a'\n[[kinds]]\nname = 'a'", "two kinds have the name a"),
        ("[[kinds]]\nname = 'a b'\n[[kinds]]\nname = 'a-b'\nramp = 3", "two different runs would share the"),
        ("[[kinds]]\nname = 'a'\nspan = 3", "unknown field span of the kind a"),
        ("[[kinds]]\nname = 'a'\nspan_init = 'limit'", "span_init must be a number, not 'limit'"),
        ("[[kinds]]\nname = 'a'\nspan_init = 'span_kind'", "span_init of the kind a must name a field"),
        ("[[kinds]]\nname = 'a'\nramp = [3]", "ramp must be a number, not [3]"),
        ("[[kinds]]\nname = 'w'\nequal_cost_to = 'a'", "equal_cost_to of the kind w must name an earlier kind"),
        ("[[kinds]]\nname = 'w'\nequal_cost_to = ['a']", "equal_cost_to of the kind w must name an earlier kind"),
        (
            "[[kinds]]\nname = 'a'\n[[kinds]]\nname = 'w'\nequal_cost_to = 'a'\nramp = 3",
            "the kind w has equal_cost_to and takes all fields from that kind, so it must not set others",
        ),
        ("text = 'absent.txt'", "absent.txt: No such file or directory"),
        ("text = 'text.txt'\n[training]\ncontext = 4096", "text.txt has 2000 bytes; a context of 4096 needs at least"),
        ("text = 'text.txt'\n[training]\ncontext = 16\n[model]\nwidth = 9", "plan: width must be a multiple of"),
        (
            "text = 'text.txt'\n[training]\ncontext = 16\n[grid]\nspan_limit = [8, 16]",
            "plan-limit8: span_init must be at most span_limit (8), not 16",
        ),
        ("text = 'text.txt'\n[training]\ncontext = 16\nengine = 'torc'", "plan: engine must be one of "),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_plan_is_said_in_one_sentence(folder, capsys, content, words):
    written(folder, content)
    before = sorted(folder.rglob("*"))
    assert cli.main(["sweep", "plan.toml"]) == 1
    assert words in error_of(capsys)
    assert sorted(folder.rglob("*")) == before
