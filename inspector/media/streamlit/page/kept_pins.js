// The browser keeps the pins for its other tabs, and for this tab after a reload.
let asked // the session that has got what was kept
let last // the text that this tab has read or written; another tab may have written a newer one

export default function ({ data, setTriggerValue }) {
  const { key, text, session } = data
  try {
    if (text === null) {
      if (session === asked) return
      asked = session
      last = localStorage.getItem(key)
      if (last) setTriggerValue("kept", last)
    } else if (text !== last) {
      last = text
      if (text) localStorage.setItem(key, text)
      else localStorage.removeItem(key)
    }
  } catch {
    // A browser that has no storage, or no more of it, keeps nothing.
  }
}
