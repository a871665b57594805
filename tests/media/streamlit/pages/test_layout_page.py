"""The Layout page: the editor, its problems, presets, rules, and the URL.

What each field allows is tested in tests/layout. Here, one case shows that a problem arrives at its field.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.jobs import inspection
from inspector.jobs import own_model_registration as registration
from inspector.layout.presets import MLP_PRESETS as PRESETS
from inspector.model import own_model
from inspector.model.built_in import catalogue
from tests.media.streamlit.scripted_page import go_back, widget_of

pytestmark = pytest.mark.usefixtures("without_programs")


def test_the_default_layout(page):
    assert page.heading() == "### MLP, logical axes on data 2 × model 4, 8 emulated devices"
    assert page.value("field:mesh") == "2x4"
    assert page.value("field:axes") == "data, model"
    assert page.rules() == [("batch", "data"), ("hidden", "model")]
    assert page.preset() == "Data + tensor"
    assert [page.value(f"size:{name}") for name in ("batch", "layers", "depth")] == [8, 4, 1024]
    assert page.value("size:scan") is False
    page.open("drawer:Training and measurement")
    assert page.value("size:optimizer") == "adam"
    assert page.value("size:learning_rate") == 1e-3
    assert page.value("size:dtype") == "float32"
    assert page.value("field:steps") == 20
    assert page.query() == {}
    assert not page.problems() and not page.warnings() and not page.errors()
    assert page.block_map() == [[f"devices<br>{one}, {one + 4}" for one in range(4)]]


def test_invalid_axis_names_do_not_change_rules(page):
    page.type("field:axes", "<b>data</b>, model")
    (problem,) = page.problems_beside("field:axes")
    assert problem.startswith("axes has ")
    assert page.rules() == [("batch", "data"), ("hidden", "model")]
    assert_shows_the_last_valid_layout(page)
    page.type("field:axes", "data, model")
    assert not page.problems()
    assert page.rules() == [("batch", "data"), ("hidden", "model")]


def test_an_invalid_rule_is_marked(page):
    page.type(page.rule_key(1, "axes"), "expert")
    (problem,) = page.problems_beside(page.rule_key(1, "axes"))
    assert "expert" in problem
    assert page.problems_beside(page.rule_key(0, "axes")) == []
    assert_shows_the_last_valid_layout(page)


@pytest.mark.nightly
def test_a_closed_expander_keeps_its_values_and_opens_for_a_problem(open_page):
    drawer = "drawer:Training and measurement"
    page = open_page()
    assert "field:steps" not in page.field_keys()
    page.open(drawer)
    page.set("field:steps", 7)
    page.switch("field:donate", True)
    page.test.session_state[drawer] = False
    page.set("size:layers", 2)
    assert "field:steps" not in page.field_keys()
    assert page.query() == {"layers": "2", "steps": "7", "donate": "true"}
    page.open(drawer)
    assert page.value("field:steps") == 7 and page.value("field:donate") is True
    page.set("field:steps", 0)
    page.test.session_state[drawer] = False
    page.set("size:layers", 3)
    assert page.problems_beside("field:steps") != []


def test_each_problem_is_next_to_its_field(page):
    page.type("field:mesh", "0x4")
    page.set("size:batch", 0)
    page.open("drawer:Training and measurement")
    page.set("field:steps", 0)
    assert len(page.problems()) == 3
    assert "axis of size 0" in page.problems_beside("field:mesh", "field:axes")[0]
    sizes = page.problems_beside("size:batch", "size:layers", "size:depth")
    assert "batch is '0'" in sizes[0]
    assert "steps is '0'" in page.problems_beside("field:steps")[0]
    assert_shows_the_last_valid_layout(page)
    assert page.value("field:mesh") == "0x4", "the typed text must stay"


@pytest.mark.parametrize(("place", "text"), [("W1", "None, expert"), ("layer", "stage")])
def test_an_invalid_spec_is_marked(open_page, place, text):
    page = open_page(model="mlp")
    heading = page.heading()
    page.type(f"spec:{place}", text)
    (problem,) = page.problems_beside(f"spec:{place}")
    assert problem.startswith(f"spec {place} names mesh axis")
    assert page.problems() == [problem]
    assert page.heading() == heading
    assert page.warnings()
    assert page.query() == {"model": "mlp"}


def test_an_indivisible_batch_is_reported_at_its_rule(page):
    page.set("size:batch", 7)
    said = page.problems_beside(page.rule_key(0, "axes"))
    assert len(said) == 1 and said[0].startswith("batch of size 7 is not divisible by 2 (data)")
    assert page.problems() == said


def test_an_indivisible_size_is_reported_at_the_applied_rule(open_page):
    # Both rules are for batch. The first applies, and its mesh axis does not divide 8 rows.
    page = open_page(mesh="16x4", target="plan", rules="batch.data~batch.model~hidden.model")
    said = page.problems_beside(page.rule_key(0, "axes"))
    assert len(said) == 1 and said[0].startswith("batch of size 8 is not divisible by 16 (data)")
    assert page.problems() == said


def test_an_uneven_layout_is_not_run(page):
    page.set("size:batch", 7)
    assert page.test.button(key="run_button").disabled
    assert len(page.errors()) == 1
    assert "batch of size 7 is not divisible by 2 (data)" in page.errors()[0]


def test_the_page_says_whether_a_run_has_placed_all_arrays_as_planned(page):
    layout = layouts.parse({}).unwrap()
    planned = inspection.shared().plan(layout)
    run = replace(planned, source=replace(planned.source, kind="cpu"))

    def agreed(found) -> list[str]:
        page.test.session_state["finished_runs"][layout.key()] = found
        page.test.run()
        page._check()
        return [caption.value for caption in page.test.main.caption if "as planned" in caption.value]

    (caption,) = agreed(run)
    assert caption.startswith(f"All {len(planned.arrays)} arrays")
    moved = replace(planned.arrays[0], spec=(None,) * len(planned.arrays[0].shape), replicas=8)
    assert agreed(replace(run, arrays=(moved, *run.arrays[1:]))) == []
    ordered = replace(run.mesh, devices=(0, 2, 1, *range(3, 8)))
    compiled = replace(run, mesh=ordered, source=replace(run.source, kind="tpu"))
    (caption,) = agreed(compiled)
    assert "Device 1 of the plan is device 2" in caption


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(("mesh", "offered"), [("512", True), ("1024", False)])
def test_more_devices_than_can_be_emulated_are_not_run(open_page, mesh, offered):
    page = open_page(mesh=mesh, axes="data", target="plan", batch="1024", rules="batch.data", depth="64")
    assert not page.problems()
    assert page.test.button(key="run_button").disabled != offered
    said = " ".join(caption.value for caption in page.test.main.caption)
    assert ("At most 512 devices can be emulated, but the mesh has 1,024" in said) != offered


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("model", ["logical_mlp", "mlp"])
@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_a_preset_keeps_the_number_of_devices(open_page, preset, model):
    page = open_page(model=model, mesh="4x4", batch="16")
    page.choose_preset(preset.name)
    assert not page.problems() and not page.warnings()
    wanted = preset.applied_to(layouts.parse({"model": model, "mesh": "4x4", "batch": "16"}).unwrap())
    shown = layouts.parse(page.query()).unwrap()
    assert shown == wanted
    assert shown.devices == 16
    assert page.preset() == preset.name
    if model == "logical_mlp":
        assert page.rules() == [(name, " + ".join(axes)) for name, axes in preset.rules]


def test_a_changed_rule_clears_the_preset(page):
    page.type(page.rule_key(0, "axes"), "")
    assert page.preset() is None
    page.type(page.rule_key(0, "axes"), "data")
    assert page.preset() == "Data + tensor"


def test_a_chosen_axis_type_stays_when_the_mesh_gets_another_axis(page):
    page.open("drawer:Advanced")
    page.choose_several("field:explicit", ["data"])
    page.type("field:mesh", "2x2x2")
    assert page.value("field:explicit") == ["data"]
    assert layouts.parse(page.query()).unwrap().explicit_axes == ("data",)


def test_rules_are_added_moved_and_deleted(page):
    page.press("add_rule")
    assert page.rules() == [("batch", "data"), ("hidden", "model"), ("embed", "")]
    page.act_on_rule(2, "Move up")
    page.act_on_rule(1, "Move up")
    assert page.rules() == [("embed", ""), ("batch", "data"), ("hidden", "model")]
    page.act_on_rule(0, "Move down")
    assert page.rules() == [("batch", "data"), ("embed", ""), ("hidden", "model")]
    assert page.query() == {"rules": "batch.data~embed.~hidden.model"}
    page.act_on_rule(0, "Delete")
    assert page.rules() == [("embed", ""), ("hidden", "model")]
    page.act_on_rule(1, "Delete")
    page.act_on_rule(0, "Delete")
    assert page.rules() == []
    assert not page.problems()
    page.press("add_rule")
    assert page.rules() == [("batch", "")]


def test_the_first_rule_gets_the_mesh_axis(page):
    page.press("add_rule")
    page.type(page.rule_key(2, "axes"), "model")
    hidden_first = page.block_map()
    page.act_on_rule(2, "Move up")
    assert page.rules() == [("batch", "data"), ("embed", "model"), ("hidden", "model")]
    embed_first = page.block_map()
    # A kernel of shape embed × hidden: sharded along its columns, then along its rows.
    assert (len(hidden_first), len(hidden_first[0])) == (1, 4)
    assert (len(embed_first), len(embed_first[0])) == (4, 1)


def test_first_and_last_rule_have_fewer_actions(page):
    def actions(position: int) -> list[str]:
        return page.test.menu_button(key=page.rule_key(position, "menu")).options

    assert actions(0) == ["Move down", "Delete"]
    assert actions(1) == ["Move up", "Delete"]
    page.act_on_rule(1, "Delete")
    assert actions(0) == ["Delete"]


@pytest.mark.nightly
def test_another_model_keeps_mesh_names_and_sizes(page):
    page.type("field:axes", "replica, model")
    page.type("field:mesh", "4x2")
    page.set("size:depth", 512)
    page.choose("field:model", "mlp")
    assert page.value("field:mesh") == "4x2"
    assert page.value("field:axes") == "replica, model"
    assert page.value("size:depth") == 512
    assert page.heading() == "### MLP, device axes on replica 4 × model 2, 8 emulated devices"
    assert not page.problems() and not page.warnings()
    page.choose("field:model", "logical_mlp")
    assert page.value("field:mesh") == "4x2"
    assert page.value("size:depth") == 512
    assert not page.problems()


def test_a_renamed_mesh_axis_is_renamed_in_the_rules(page):
    page.type(page.rule_key(1, "axes"), "model + data")
    page.type("field:axes", "data, tensor")
    assert page.rules() == [("batch", "data"), ("hidden", "tensor + data")]
    assert not page.problems()


@pytest.mark.nightly
def test_a_renamed_mesh_axis_is_renamed_in_the_specs(open_page):
    page = open_page(model="mlp")
    page.type("field:axes", "data, tensor")
    assert page.value("spec:W1") == "None, tensor"
    assert page.value("spec:W2") == "tensor, None"
    assert page.value("spec:y") == "data, tensor"
    assert not page.problems()


def test_explicit_axes_are_in_the_link_and_follow_the_names(page):
    page.open("drawer:Advanced")
    page.choose_several("field:explicit", ["model"])
    assert page.query() == {"axis_types": "auto.explicit"}
    page.type("field:axes", "data, tensor")
    assert page.value("field:explicit") == ["tensor"]
    assert not page.problems()
    page.type("field:mesh", "8")
    assert page.value("field:explicit") == []


def test_optimizer_axes_are_in_the_link_and_follow_the_names(page):
    page.open("drawer:Advanced")
    page.choose_several("field:optimizer_axes", ["model", "data"])
    assert page.query() == {"optimizer_axes": "model.data"}
    page.type("field:axes", "data, tensor")
    assert page.value("field:optimizer_axes") == ["tensor", "data"]
    assert layouts.parse(page.query()).unwrap().optimizer_axes == ("tensor", "data")
    page.type("field:mesh", "8")
    assert page.value("field:optimizer_axes") == ["data"]


def test_mesh_axes_of_a_rule_are_joined_by_a_plus_or_a_comma(page):
    page.type(page.rule_key(1, "axes"), "model, data")
    assert not page.problems()
    assert dict(page.test.session_state["last_layout"].rules)["hidden"] == ("model", "data")
    assert page.query() == {"rules": "batch.data~hidden.model-data"}


def test_axis_names_can_have_types(page):
    page.open("drawer:Advanced")
    page.type("field:axes", "data:explicit, model")
    assert page.value("field:axes") == "data, model"
    assert page.value("field:explicit") == ["data"]
    page.type("field:axes", "data:manual, model")
    assert len(page.problems()) == 1 and "jax.shard_map" in page.problems()[0]


def test_a_link_opens_explicit_axes(open_page):
    page = open_page(axis_types="explicit.auto", depth="64")
    assert layouts.parse(page.query()).unwrap().explicit_axes == ("data",)
    page.open("drawer:Advanced")
    assert page.value("field:explicit") == ["data"]
    assert not page.problems() and not page.warnings()


def test_closed_fields_keep_their_values_and_forget_axes_like_open_ones(open_page):
    page = open_page(processes="2", axis_types="explicit.auto", optimizer_axes="model")
    assert "field:processes" not in page.field_keys()
    query = {"processes": "2", "axis_types": "explicit.auto", "optimizer_axes": "model"}
    assert page.query() == query
    page.type("field:mesh", "8")
    page.type("field:mesh", "2x4")
    layout = layouts.parse(page.query()).unwrap()
    assert (layout.processes, layout.explicit_axes, layout.optimizer_axes) == (2, ("data",), ())
    page.open("drawer:Advanced")
    assert page.value("field:processes") == 2
    assert (page.value("field:explicit"), page.value("field:optimizer_axes")) == (["data"], [])


def test_swapped_axis_names_do_not_change_rules(page):
    page.type("field:axes", "model, data")
    assert page.rules() == [("batch", "data"), ("hidden", "model")]
    assert "on model 2 × data 4" in page.heading()


def test_a_mesh_of_another_rank_changes_axis_names(page):
    page.type("field:mesh", "2x2x2")
    assert page.value("field:axes") == "data, model, fsdp"
    assert page.problems_beside("field:mesh", "field:axes") == []
    page.type("field:mesh", "2x4")
    assert page.value("field:axes") == "data, model"
    assert not page.problems() and not page.warnings()


def test_a_rule_to_a_removed_mesh_axis_is_marked(page):
    page.type("field:mesh", "8")
    assert page.problems() == page.problems_beside(page.rule_key(1, "axes"))
    assert page.problems() == ["rule hidden names mesh axis 'model', but the mesh has data"]


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("model", ["logical_mlp", "mlp"])
def test_scan_stacks_the_layers(open_page, model):
    page = open_page(model=model)
    page.open_panel("Arrays")
    page.switch("size:scan", True)
    assert page.query()["scan"] == "true"
    paths = widget_of(page.test.selectbox, "selected_array").options
    kernels = [path for path in paths if path.startswith("params/") and path.endswith("kernel")]
    assert len(kernels) == 1, "all layers share one array"
    page.switch("size:scan", False)
    assert "scan" not in page.query()


def test_a_bias_without_a_rule_is_on_every_device(page):
    page.open_panel("Arrays")
    page.switch("size:bias", True)
    page.choose("selected_array", "params/DotReluDot_0/b2")
    assert page.block_map() == [["devices<br>0–7 (8×)"]]
    page.choose("selected_array", "params/DotReluDot_0/Dense_0/bias")
    assert page.block_map() == [[f"devices<br>{one}, {one + 4}" for one in range(4)]]


def test_an_invalid_link_shows_a_notice_and_the_default(open_page):
    page = open_page(mesh="2x", depth="512")
    (warning,) = page.warnings()
    assert "mesh is '2x'" in warning
    assert page.query() == {"depth": "512"}, "valid fields of the link stay"
    assert page.value("size:depth") == 512
    assert not page.problems()
    page.set("size:depth", 1024)
    assert not page.warnings(), "the first change removes the notice"


def test_a_link_with_unknown_fields_shows_a_notice(open_page):
    page = open_page(colour="red")
    assert len(page.warnings()) == 1
    assert "'colour' is not a field of model logical_mlp" in page.warnings()[0]


def assert_shows_the_last_valid_layout(page):
    assert page.heading() == "### MLP, logical axes on data 2 × model 4, 8 emulated devices"
    assert len(page.warnings()) == 1 and "layout before that edit" in page.warnings()[0]
    assert page.query() == {}
    assert page.block_map() == [[f"devices<br>{one}, {one + 4}" for one in range(4)]]


def test_a_click_with_the_old_url_keeps_the_layout(open_page):
    page = open_page(mesh="4x2")
    page.type("field:mesh", "8x1")
    assert page.query() == {"mesh": "8x1"}
    page.test.query_params.clear()
    page.test.query_params["mesh"] = "4x2"  # the URL that the browser still has
    page.set("size:layers", 2)
    assert (page.value("field:mesh"), page.value("size:layers")) == ("8x1", 2)
    assert page.query() == {"mesh": "8x1", "layers": "2"}


def test_the_back_button_restores_the_layout(open_page):
    page = open_page(mesh="4x2")
    page.type("field:mesh", "8x1")
    page.test.query_params.clear()
    page.test.query_params["mesh"] = "4x2"
    go_back(page.test)
    assert page.value("field:mesh") == "4x2"


def test_the_url_of_compare_is_not_that_of_the_back_button(open_page):
    page = open_page(mesh="4x2")
    page.test.query_params.clear()
    page.test.query_params["pin"] = "A~~mesh.8x1"
    go_back(page.test)
    assert page.value("field:mesh") == "4x2" and page.query() == {"mesh": "4x2"}
    assert not page.warnings()


def test_the_back_button_counts_also_if_another_run_comes_before_the_end(open_page):
    page = open_page(mesh="4x2")
    page.type("field:mesh", "8x1")
    page.test.query_params.clear()
    page.test.query_params["mesh"] = "4x2"
    page.test.session_state["page_switch"] = {"presses": 1}  # as the page says, and the run does not
    page.test.run()
    assert page.value("field:mesh") == "4x2"
    page.test.query_params["mesh"] = "2x4"
    page.test.run()  # the next run has another URL, which is one on its way
    assert page.value("field:mesh") == "4x2"


def test_a_run_without_a_change_and_with_the_old_url_keeps_the_layout(open_page):
    page = open_page(mesh="4x2")
    page.type("field:mesh", "8x1")
    page.test.query_params.clear()
    page.test.query_params["mesh"] = "4x2"  # a button that changes no field
    page.test.run()
    assert page.value("field:mesh") == "8x1"
    assert page.query() == {"mesh": "8x1"}


def test_fields_stay_after_an_error_in_a_panel(page, monkeypatch):
    from inspector.media.streamlit.panels import snapshot_panels

    page.type("field:mesh", "4x2")
    with monkeypatch.context() as broken:
        broken.setattr(snapshot_panels, "show", lambda *_, **__: 1 / 0)
        page.test.run()
        assert page.test.exception
    page.test.run()
    assert not page.test.exception
    assert page.value("field:mesh") == "4x2"


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["transformer", "moe"])
def test_sizes_that_follow_from_the_width_are_offered(open_page, model):
    page = open_page(model=model, target="plan")
    assert "following" not in [button.key for button in page.test.button]
    page.set("size:embed", 2048)
    page.press("following")
    sizes = page.test.session_state["last_layout"].sizes
    assert sizes["heads"] * sizes["head_dim"] == sizes["embed"] == 2048 and sizes["mlp"] == 3.5 * 2048
    assert sizes["heads"] % sizes["kv_heads"] == 0
    assert "following" not in [button.key for button in page.test.button]
    page.set("size:embed", 2050)  # no multiple of a head
    assert "following" not in [button.key for button in page.test.button]


def test_a_size_with_a_reserved_name_is_in_the_link(open_page):
    small = {"model": "transformer", "layers": "2", "batch": "8", "seq": "64", "vocab": "512"}
    page = open_page(**small)
    page.set("size:embed", 512)
    assert page.query()["embed-size"] == "512" and "embed" not in page.query()
    again = open_page(**page.query())
    assert not again.warnings()
    assert again.value("size:embed") == 512
    assert again.query() == page.query()


@pytest.fixture
def register(tmp_path, monkeypatch):
    """Write a module of models, register some of them, and return their names."""
    registered = []

    def make(module, source, *functions):
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv(own_model.VARIABLE, "[]")
        (tmp_path / f"{module}.py").write_text(source)
        for function in functions:
            registered.append(registration.register_own(f"{module}:{function}").name)
        # Workers that start from now on know the models.
        inspection.shared().close()
        inspection.shared.cache_clear()
        return registered

    yield make
    for name in registered:
        catalogue.CATALOGUE.pop(name, None)


@pytest.mark.nightly
def test_a_model_of_its_own_mesh_axes_opens_without_problems(open_page, register):
    """The mesh has the axes that the code names; rules without their axes are a warning."""
    by_code, by_rules = register("on_mp", ON_MP, "plain", "ruled")
    page = open_page(model=by_code)
    assert page.value("field:axes") == "mp"
    assert not page.problems() and not page.warnings() and not page.errors()
    page.choose("field:model", by_rules)
    assert page.value("field:axes") == "tp, fsdp, ep"
    assert not page.problems() and not page.warnings() and not page.errors()
    page = open_page(model=by_rules, mesh="2x4")
    assert len(page.warnings()) == 1 and not page.problems() and not page.errors()


@pytest.mark.nightly
def test_patterns_of_state_specs_are_edited(open_page, register):
    (name,) = register("by_path", BY_PATH, "build")
    page = open_page(model=name)
    assert page.value("field:axes") == "dp, mp"
    (unmatched,) = page.warnings()
    assert "params/b" in unmatched and "params/w" not in unmatched
    page.press("add_pattern")
    assert not page.warnings()
    fields = [key for key in page.field_keys() if re.match(r"pattern:.*:(name|axes)$", key)]
    page.type(fields[1], "fsdp(dp + mp, 0)")
    assert page.query()["state_specs"] == "w=fsdp(dp+mp,0);.*="
    page.type(fields[3], "nowhere")
    assert page.problems()
    page.type(fields[3], "mp")
    rows = layouts.parse(page.query()).unwrap().state_specs
    assert [(row.pattern, row.axes) for row in rows] == [("w", ("dp", "mp")), (".*", ("mp",))]


BY_PATH = """
import jax
from inspector.model import Model, by_regex

def build():
    def init(key, batch):
        return {"params": {"w": batch["x"], "b": batch["x"][0]}}
    return Model(init=init, apply=lambda state, batch: batch["x"] @ state["params"]["b"],
                 batch={"x": jax.ShapeDtypeStruct((8, 16), "float32")},
                 state_specs=by_regex([("w", (None, "mp"))]), mesh={"dp": 2, "mp": 4})
"""

ON_MP = """
from flax import linen as nn
import jax
from inspector.model import Model

def build(box, axes, **more):
    return Model(init=lambda key, batch: {"params": {"w": box(batch["x"], axes)}},
                 step=lambda state, batch: (state, batch["x"].sum()),
                 batch=lambda key: {"x": jax.random.normal(key, (8, 16))}, **more)

def plain():
    return build(nn.Partitioned, ("mp", None), names="mesh")

def ruled():
    rules = [("a", "tp"), ("b", "fsdp"), ("expert", "ep")]
    return build(nn.LogicallyPartitioned, ("a", "b"), rules=rules)
"""
