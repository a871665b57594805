// All figures of a page share one copy of Plotly, and each is redrawn in the element that it has.
let loading
const plotly = () =>
  (loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script")
    script.src = "PLOTLY_URL"
    script.onload = () => resolve(window.Plotly)
    script.onerror = () => {
      loading = undefined
      reject(new Error("The script that draws figures was not loaded. Reload the page."))
    }
    document.head.append(script)
  }))

// Plotly's own bar of buttons covers the title it floats over; dragging zooms without it.
const CONFIG = { displayModeBar: false, showTips: false }

function draw(Plotly, place) {
  const { figure, ramps, pickable } = place.shown
  const { data, layout } = JSON.parse(figure)
  const style = getComputedStyle(place)
  const dark = style.colorScheme === "dark"
  for (const index of ramps) data[index].reversescale = dark
  const title = layout.title?.text
  for (const [name, axis] of Object.entries(layout))
    if (/^[xy]axis/.test(name)) axis.uirevision = JSON.stringify([title, axis.range])
  const grid = style.getPropertyValue("--st-border-color")
  const axis = { gridcolor: grid, zerolinecolor: grid, tickcolor: grid, automargin: true }
  layout.template = {
    layout: {
      font: { color: style.color, family: style.fontFamily, size: 12 },
      title: { font: { color: style.getPropertyValue("--st-heading-color"), weight: "bold" } },
      margin: { l: 0, r: 0 },
      xaxis: { ...axis, showgrid: false, zeroline: false },
      yaxis: axis,
      hoverlabel: {
        bgcolor: style.getPropertyValue("--st-background-color"),
        bordercolor: grid,
        font: { color: style.color, family: style.fontFamily },
      },
    },
  }
  layout.width = place.clientWidth
  const first = !place.on
  Plotly.react(place, data, layout, CONFIG)
  if (first && pickable) place.on("plotly_click", ({ points }) => place.pick(points[0]?.customdata))
}

const HOVER_MS = 100 // Plotly draws the text of a point at most every 50 ms

// With the arrow keys, the mark moves from point to point of the figure; Enter and the space bar pick one.
function press(Plotly, place, event) {
  const points = place._fullData.flatMap((trace, curveNumber) =>
    Array.from(trace.customdata ?? [], (value, pointNumber) => ({ curveNumber, pointNumber, value }))
  )
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key]
  if (step && points.length) {
    const next = (place.marked ?? (step > 0 ? -1 : 0)) + step
    place.marked = (next + points.length) % points.length
    Plotly.Fx.hover(place, [points[place.marked]])
    setTimeout(() => {
      const lines = [...place.querySelectorAll(".hoverlayer text")].map((text) => text.textContent)
      place.parentElement.querySelector("output").textContent = lines.join(" ")
    }, HOVER_MS)
  } else if (["Enter", " "].includes(event.key) && points[place.marked])
    place.pick(points[place.marked].value)
  else return
  event.preventDefault()
}

export default async function ({ data, parentElement, setTriggerValue }) {
  const place = parentElement.querySelector(".figure")
  place.shown = data
  place.pick = (value) => setTriggerValue("pick", { value: value ?? null })
  place.setAttribute("aria-label", data.alt)
  place.style.height = `${data.height}px`
  if (data.pickable) place.tabIndex = 0
  const Plotly = await plotly()
  // A later call can have brought other data by now, and then both draw these.
  if (place.clientWidth) draw(Plotly, place)
  if (!place.observer) {
    place.observer = new ResizeObserver(() => {
      if (place.clientWidth && place.clientWidth !== place._fullLayout?.width) draw(Plotly, place)
    })
    place.observer.observe(place)
    if (data.pickable) place.addEventListener("keydown", (event) => press(Plotly, place, event))
  }
  return () => {
    if (parentElement.isConnected) return // only replaced by a later call
    place.observer.disconnect()
    Plotly.purge(place)
  }
}
