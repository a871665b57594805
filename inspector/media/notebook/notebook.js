(settings, figures) => {
  "use strict";
  const root = document.getElementById(settings.id);
  if (!root) return;

  // Plotly is run with its own `module`, so that RequireJS in a notebook does not take it away.
  const evaluated = (code) => {
    const module = {exports: {}};
    new Function("module", "exports", "define", code)(module, module.exports, undefined);
    return module.exports;
  };

  const unpacked = async (text) => {
    const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return evaluated(await new Response(stream).text());
  };

  const fetched = async () => evaluated(await (await fetch(settings.cdn)).text());

  const library = async () => {
    const until = Date.now() + settings.patience;
    while (!window.shardingInspectorPlotly && Date.now() < until) {
      await new Promise((done) => setTimeout(done, 100));
    }
    const known = window.shardingInspectorPlotly;
    if (!known || typeof known === "string") {
      window.shardingInspectorPlotly = known ? unpacked(known) : fetched();
    }
    return window.shardingInspectorPlotly;
  };

  const textColor = () => getComputedStyle(root).color;

  const isDark = (color) => {
    const [red, green, blue] = color.match(/[\d.]+/g).map(Number);
    return 0.299 * red + 0.587 * green + 0.114 * blue > 140;  // light text
  };

  const colored = (layout) => {
    const color = textColor(), dark = isDark(color);
    return {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)",
      font: {...layout.font, color, family: getComputedStyle(root).fontFamily},
      hoverlabel: {
        ...layout.hoverlabel, bgcolor: dark ? "#161b22" : "#f6f8fa", bordercolor: dark ? "#30363d" : "#d0d7de",
        font: {color: dark ? "#e6edf3" : "#1f2328"},
      },
    };
  };

  const draw = async (figure) => {
    const {data, layout} = figures[figure.dataset.figure];
    const Plotly = await library();
    const dark = isDark(textColor());
    const themed = data.map((trace) => ({...trace, ...(dark && trace.meta?.dark)}));
    await Plotly.react(figure.querySelector(".plot"), themed, colored(layout), {
      displayModeBar: false, displaylogo: false, responsive: false,
    });
    figure.dataset.state = "drawn";
  };

  const all = [...root.querySelectorAll("figure[data-figure]")];
  const fail = () => all.forEach((one) => {
    one.querySelector(".plot").style.height = "auto";
    one.querySelector(".plot").textContent = "The figure needs Plotly: run the cell again.";
  });
  Promise.all(all.map(draw)).catch(fail);

  let color = textColor();
  const redraw = () => {
    if (root.isConnected && textColor() !== color) {
      color = textColor();
      all.filter((one) => one.dataset.state).forEach(draw);
    }
  };
  const theme = new MutationObserver(() => setTimeout(redraw, 50));
  for (const element of [document.documentElement, document.body]) {
    theme.observe(element, {attributes: true});
  }
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
