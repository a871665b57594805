// A field takes effect while it is typed: after a pause, it is committed as by Enter. A text that is not yet
// complete is not committed, so no error appears between two letters.
const PAUSE_MS = 300
let focused // the last field that got the focus, so that it does not get it again

export default function ({ data, parentElement }) {
  parentElement.data = data
  if (data.focus && data.focus !== focused) focus((focused = data.focus))
  if (parentElement.stop) return parentElement.stop
  let timer
  const typed = ({ target, isComposing }) => {
    clearTimeout(timer)
    const place = target.closest('[data-testid="stSidebar"] [class*=st-key-]')
    const [, key] = /st-key-(\S+)-\d+(?: |$)/.exec(place?.className) ?? []
    const check = isComposing ? undefined : checkOf(key ?? "")
    if (!check) return
    timer = setTimeout(() => {
      if (document.activeElement === target && check(target.value, parentElement.data, key))
        target.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }))
    }, PAUSE_MS)
  }
  const pressed = ({ key }) => key === "Enter" && clearTimeout(timer)
  document.addEventListener("input", typed)
  document.addEventListener("keydown", pressed)
  parentElement.stop = () => {
    if (parentElement.isConnected) return // only replaced by a later call
    clearTimeout(timer)
    document.removeEventListener("input", typed)
    document.removeEventListener("keydown", pressed)
  }
  return parentElement.stop
}

// Whether the text of a field is complete, by the key of the field.
const CHECKS = [
  [/^field-mesh$/, isMesh],
  [/^field-axes$/, areNames],
  [/^rule-\d+-name$/, (text, { names }) => names.includes(text.trim())],
  [/^rule-\d+-axes$/, (text, { axes }) => !text.trim() || areAxes(words(text, /[+,]/), axes)],
  [/^pattern-\d+-name$/, isPattern],
  [/^pattern-\d+-axes$/, (text, { axes }) => isFsdp(text, axes) || !text.trim() || isSpec(words(text), axes)],
  [/^spec-/, (text, { axes, dimensions }, key) =>
    words(text).length === dimensions[key] && isSpec(words(text), axes)],
]
const checkOf = (key) => CHECKS.find(([pattern]) => pattern.test(key))?.[1]
const words = (text, separator = ",") => text.split(separator).map((word) => word.trim())
const areAxes = (found, axes) => found.every((word) => axes.includes(word)) && new Set(found).size === found.length

// A mesh with fewer axes can be the beginning of one with more.
function isMesh(text, { axes, mostAxes, mostDevices, devices }) {
  const sizes = words(text, /[x×*]/i)
  const product = sizes.reduce((all, size) => all * (/^\d+$/.test(size) ? Number(size) : NaN), 1)
  const fits = devices === null ? product >= 1 && product <= mostDevices : product === devices
  return fits && sizes.length >= axes.length && sizes.length <= mostAxes
}

function areNames(text, { axes }) {
  const names = words(text)
  const valid = names.every((name) => /^\w*[A-Za-z_]\w*$/.test(name) && name !== "None")
  return valid && names.length === axes.length && new Set(names).size === names.length
}

function isPattern(text) {
  try {
    return Boolean(text && new RegExp(text))
  } catch {
    return false
  }
}

function isFsdp(text, axes) {
  const [, over] = /^\s*fsdp\(([^,()]+)(?:,\s*(?:min_bytes=)?\d+\s*)?\)\s*$/.exec(text) ?? []
  return over !== undefined && areAxes(words(over, "+"), axes)
}

function isSpec(entries, axes) {
  const used = entries.filter((entry) => entry !== "None").flatMap((entry) => words(entry, "+"))
  return areAxes(used, axes)
}

function focus(key, tries = 50) {
  const field = document.querySelector(`[class*="st-key-${key}-"] input`)
  if (field) field.select()
  else if (tries) setTimeout(focus, 20, key, tries - 1)
}
