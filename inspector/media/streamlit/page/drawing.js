// A drawing as SVG. The server draws it; here are links between its parts, and what an edit has changed.
const PARTS = ".tile, .move, .device"
const CHANGED_MS = 4000

// Cuts of arrays that are cut otherwise now are shown dashed for some seconds.
function showChanges(place, before) {
  for (const tile of place.querySelectorAll(".tile[data-cuts]")) {
    const old = before.get(tile.dataset.path)
    if (!old || old.dataset.cuts === tile.dataset.cuts) continue
    const [from, to] = [old, tile].map((one) => one.querySelector(".body"))
    if (!from || !to) continue
    const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => +from.getAttribute(name))
    const ghost = document.createElementNS(to.namespaceURI, "g")
    const scale = [to.getAttribute("width") / width, to.getAttribute("height") / height]
    ghost.setAttribute("class", "was")
    ghost.setAttribute(
      "transform",
      `translate(${to.getAttribute("x")} ${to.getAttribute("y")}) scale(${scale}) translate(${-x} ${-y})`
    )
    ghost.append(...old.querySelectorAll("line.cut"))
    tile.append(ghost)
    tile.classList.add("changed")
    setTimeout(() => {
      ghost.remove()
      tile.classList.remove("changed")
    }, CHANGED_MS)
  }
}

// Everything of mesh axes is lit, and of cuts only those of one logical axis, if it is known.
function light(place, axes, logical) {
  place.classList.toggle("lit", axes.length > 0)
  for (const part of place.querySelectorAll("[data-axis]")) {
    const { axis, rule } = part.dataset
    part.classList.toggle("on-axis", axes.includes(axis) && (!logical || !rule || rule === logical))
  }
}

// A rule of the sidebar under the pointer, or with the focus, lights its cuts, moves and devices.
function followRules(place) {
  const row = (event) => event.target.closest?.("input")?.ariaLabel?.match(/^(?:Logical axis|Mesh axes) of (rule \d+)$/)
  const field = (label) => document.querySelector(`input[aria-label="${label}"]`)?.value.trim()
  const show = (event) => {
    if (!place.isConnected) return
    const rule = row(event)?.[1]
    if (!rule && !place.rule) return
    place.rule = rule
    const axes = rule ? field(`Mesh axes of ${rule}`)?.split(/[\s+,]+/).filter(Boolean) ?? [] : []
    light(place, axes, rule && field(`Logical axis of ${rule}`))
  }
  const events = ["pointerover", "focusin"]
  for (const event of events) document.addEventListener(event, show)
  return () => events.forEach((event) => document.removeEventListener(event, show))
}

function follow(place) {
  place.addEventListener("pointerover", (event) => {
    const axis = event.target.closest("[data-axis]")?.dataset.axis
    light(place, axis ? [axis] : [])
  })
  place.addEventListener("pointerleave", () => light(place, []))
  const pick = (part) => {
    const { path, collective, position } = part.dataset
    place.pick({ path, collective, position: position && +position })
  }
  place.addEventListener("click", (event) => {
    const part = event.target.closest(PARTS)
    if (part) pick(part)
  })
  place.addEventListener("keydown", (event) => {
    const part = event.target.closest?.(PARTS)
    if (!part || !["Enter", " "].includes(event.key)) return
    pick(part)
    event.preventDefault()
  })
}

export default function ({ data, parentElement, setTriggerValue }) {
  const place = parentElement.querySelector(".drawing")
  place.pick = (value) => setTriggerValue("pick", value)
  if (!place.firstChild) {
    follow(place)
    place.stop = followRules(place)
  }
  const end = () => parentElement.isConnected || place.stop()
  if (place.shown === data.svg) return end
  const before = new Map([...place.querySelectorAll(".tile")].map((tile) => [tile.dataset.path, tile]))
  const focused = place.querySelector(":focus")?.dataset
  place.shown = data.svg
  place.innerHTML = data.svg // made by the server, every text in it escaped
  place.classList.remove("lit")
  for (const part of place.querySelectorAll(".tile, .move")) part.setAttribute("tabindex", "0")
  if (focused?.path) place.querySelector(`.tile[data-path="${CSS.escape(focused.path)}"]`)?.focus()
  showChanges(place, before)
  return end
}
