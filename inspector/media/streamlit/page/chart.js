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

const LEAST_PLOT_PX = 20
// Plotly's own bar of buttons covers the title it floats over; dragging zooms without it.
const CONFIG = { displayModeBar: false, showTips: false }
const ZOOM = { ...CONFIG, scrollZoom: true, doubleClick: false }

function draw(Plotly, place) {
  // Plotly keeps what it measured when a drag or a turn of the wheel began, and ends it with that.
  clearTimeout(place.later)
  if (place._dragging || performance.now() - place.moved < WAIT_MS) {
    place.later = setTimeout(() => draw(Plotly, place), WAIT_MS)
    return
  }
  const { figure, pickable, zoom } = place.shown
  const { data, layout } = JSON.parse(figure)
  const style = getComputedStyle(place)
  const dark = style.colorScheme === "dark"
  if (dark) for (const trace of data) Object.assign(trace, trace.meta?.dark)
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
  // Plotly fails if the margins leave no room: the window has become narrow, and another figure is on its way.
  const { l = 0, r = 0 } = layout.margin ?? {}
  if (l + r + LEAST_PLOT_PX > layout.width) return
  if (zoom) {
    place.whole = [...layout.xaxis.range]
    if (place.zoomed !== zoom.number) place.period = zoom.period
    place.zoomed = zoom.number
    layout.xaxis.range = [...(place.period ??= place.whole)]
    layout.dragmode = "pan"
    addOverview(layout, grid)
  }
  const first = !place.on
  Plotly.react(place, data, layout, zoom ? ZOOM : CONFIG)
  if (first && zoom) followZoom(Plotly, place)
  if (first && pickable) place.on("plotly_click", ({ points }) => place.pick(points[0]?.customdata))
}

// A strip of the whole axis, in which the period that is shown can be moved. Plotly adds the room between
// axis and strip to the margin.
const OVERVIEW_PX = 28
const AROUND_PX = 43
const MORE_PX = OVERVIEW_PX + AROUND_PX

function addOverview(layout, color) {
  const rows = layout.height - layout.margin.t - layout.margin.b
  const thickness = OVERVIEW_PX / rows
  const match = { rangemode: "match" }
  layout.xaxis.rangeslider = { thickness, borderwidth: 1, bordercolor: color, yaxis: match }
  layout.legend.y -= MORE_PX / rows
  layout.height += MORE_PX
}

const WAIT_MS = 150 // from the last change of a zoom until the server is asked for its details

function followZoom(Plotly, place) {
  const follow = () => {
    place.period = [...place._fullLayout.xaxis.range]
    clearTimeout(place.asking)
    place.asking = setTimeout(() => place.ask(place.period), WAIT_MS)
  }
  place.on("plotly_relayouting", () => {
    place.moved = performance.now()
    follow()
  })
  place.on("plotly_relayout", follow)
  place.on("plotly_doubleclick", () => show(Plotly, place, place.whole))
  // The page scrolls on where nothing is left to zoom out.
  const isWhole = () => place.period.every((end, index) => end === place.whole[index])
  const wheel = (event) => event.deltaY > 0 && isWhole() && event.stopPropagation()
  place.addEventListener("wheel", wheel, { capture: true, passive: true })
  place.addEventListener("pointerdown", () => place.focus({ preventScroll: true }), true)
  place.addEventListener("pointermove", (event) => (place.pointer = event.clientX))
  place.addEventListener("pointerleave", () => (place.pointer = undefined))
}

// As in Perfetto, W and S zoom around the pointer, A and D pan: [factor of the period, shift].
const MOVES = { w: [0.5, 0], s: [2, 0], a: [1, -0.25], d: [1, 0.25] }

function move(Plotly, place, [factor, shift]) {
  const [low, high] = place.period
  const { _offset, _length } = place._fullLayout.xaxis
  const left = place.getBoundingClientRect().left + _offset
  const share = Math.min(Math.max(((place.pointer ?? left + _length / 2) - left) / _length, 0), 1)
  const start = low + (high - low) * (share * (1 - factor) + shift)
  show(Plotly, place, [start, start + (high - low) * factor])
}

function show(Plotly, place, [start, end]) {
  const [least, most] = place.whole
  const length = Math.min(end - start, most - least)
  const low = Math.min(Math.max(start, least), most - length)
  Plotly.relayout(place, { "xaxis.range": [low, low + length] })
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
  else if (place.shown.zoom && MOVES[event.key] && !(event.ctrlKey || event.metaKey))
    move(Plotly, place, MOVES[event.key])
  else return
  event.preventDefault()
}

export default async function ({ data, parentElement, setStateValue, setTriggerValue }) {
  const place = parentElement.querySelector(".figure")
  place.shown = data
  place.pick = (value) => setTriggerValue("pick", { value: value ?? null })
  place.ask = (period) => setStateValue("period", period)
  place.setAttribute("aria-label", data.alt)
  place.style.height = `${data.height + (data.zoom ? MORE_PX : 0)}px`
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
