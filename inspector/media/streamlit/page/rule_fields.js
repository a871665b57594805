// A rule takes effect while it is typed: after a pause, its field is committed as by Enter. A text that is not yet
// a rule is not committed, so no error appears between two letters.
const PAUSE_MS = 300
let focused // the last field that got the focus, so that it does not get it again

export default function ({ data, parentElement }) {
  parentElement.data = data
  if (data.focus && data.focus !== focused) focus((focused = data.focus))
  if (parentElement.stop) return parentElement.stop
  let timer
  const typed = ({ target, isComposing }) => {
    clearTimeout(timer)
    const [, part] = /st-key-rule-\d+-(name|axes)-/.exec(target.closest("[class*=st-key-rule-]")?.className) ?? []
    if (!part || isComposing) return
    timer = setTimeout(() => {
      if (document.activeElement === target && isComplete(part, target.value, parentElement.data))
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

function isComplete(part, text, { names, axes }) {
  const words = text.split(/[+,]/).map((word) => word.trim())
  if (part === "name") return names.includes(text.trim())
  return !text.trim() || (words.every((word) => axes.includes(word)) && new Set(words).size === words.length)
}

function focus(key, tries = 50) {
  const field = document.querySelector(`[class*="st-key-${key}-"] input`)
  if (field) field.select()
  else if (tries) setTimeout(focus, 20, key, tries - 1)
}
