// Draws the figures of the report as they come into view, in the colors of the reader's theme, and saves
// them as PNG or SVG with their provenance. A figure of a closed part comes into view when the part opens.
// It runs only the packed Plotly, whose hash the policy has; it fetches nothing.
(async () => {
  "use strict";
  const packed = Uint8Array.from(
    atob(document.getElementById("plotly").textContent), (letter) => letter.charCodeAt(0),
  );
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const plotly = document.createElement("script");
  plotly.textContent = await new Response(unpacked).text();
  document.head.append(plotly);

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const themes = {
    light: {text: "#1f2328", ground: "#ffffff", raised: "#f6f8fa", line: "#d0d7de"},
    dark: {text: "#e6edf3", ground: "#0d1117", raised: "#161b22", line: "#30363d"},
  };
  const family = getComputedStyle(document.body).fontFamily;
  let printing = false;
  let closed = [];  // parts that are open only while the page is printed

  const theme = () => themes[dark.matches && !printing ? "dark" : "light"];

  const read = (figure) =>
    JSON.parse(document.getElementById("figure-" + figure.dataset.figure).textContent);

  const themed = (data) => {
    if (theme() === themes.dark) data.forEach((trace) => Object.assign(trace, trace.meta?.dark));
  };

  const colored = (layout) => ({
    ...layout,
    font: {...layout.font, color: theme().text, family},
    hoverlabel: {
      ...layout.hoverlabel, bgcolor: theme().raised, bordercolor: theme().line,
      font: {color: theme().text, family},
    },
    modebar: {bgcolor: "rgba(0,0,0,0)", color: theme().text},
  });

  const draw = (figure) => {
    const {data, layout} = read(figure);
    themed(data);
    figure.dataset.state = "drawing";
    return Plotly.react(figure.querySelector(".plot"), data, colored(layout), {
      displayModeBar: false, displaylogo: false, responsive: false, showLink: false,
      plotlyServerURL: "", topojsonURL: "", locale: "en",
    }).then(() => { figure.dataset.state = "drawn"; });
  };

  const save = async (figure, format) => {
    const {data, layout, stamp, name} = read(figure);
    themed(data);
    const annotations = [...(layout.annotations || []), ...(stamp.annotation ? [stamp.annotation] : [])];
    const stamped = {
      ...colored(layout), annotations, height: stamp.height, margin: {...layout.margin, ...stamp.margin},
      paper_bgcolor: theme().ground,
    };
    await Plotly.downloadImage({data, layout: stamped}, {
      format, filename: name, width: layout.width, height: stamp.height, scale: format === "png" ? 2 : 1,
    });
  };

  const figures = [...document.querySelectorAll("figure[data-figure]")];
  const seen = new IntersectionObserver((entries) => {
    for (const {isIntersecting, target} of entries) {
      if (isIntersecting) {
        seen.unobserve(target);
        draw(target);
      }
    }
  }, {rootMargin: "600px"});
  figures.forEach((figure) => seen.observe(figure));

  const drawn = () => figures.filter((figure) => figure.dataset.state);
  dark.addEventListener("change", () => drawn().forEach(draw));
  window.addEventListener("beforeprint", () => {
    printing = true;
    closed = [...document.querySelectorAll("details.printed:not([open])")];
    closed.forEach((part) => { part.open = true; });
    figures.filter((figure) => !figure.closest("details:not([open])"))
      .forEach((figure) => { seen.unobserve(figure); draw(figure); });
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    closed.forEach((part) => { part.open = false; });
    drawn().forEach(draw);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-save]");
    if (button) save(button.closest("figure"), button.dataset.save);
    if (event.target.closest("button[data-open]")) {
      document.querySelectorAll("details.part").forEach((part) => { part.open = true; });
    }
    // The URL of an opened part opens it for the next reader.
    const part = event.target.closest("details.part > summary")?.parentElement;
    if (part && !part.open) history.replaceState(null, "", `#${part.id}`);
  });

  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    for (let part = target; part; part = part.parentElement) {
      if (part.tagName === "DETAILS") part.open = true;
    }
    target?.scrollIntoView();
  };
  window.addEventListener("hashchange", reveal);
  reveal();
})();
