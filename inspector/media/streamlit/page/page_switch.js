// A link to another page opens its bare URL, into which the page then writes what it shows. Both are one entry of
// the browser's history: with two, *Back* would lead to the bare URL, and the page would write it again.
let wentBack // tells the server that *Back* or *Forward* has changed the URL of the same page
// What *Back* or *Forward* has opened. What the page before sends by itself until the new one has come asks the
// server for the page before, whose run would write its URL over this one. Only the user can leave this page.
let opened // its URL, until the user acts
let waits = false // for the end of its run
let repeats = false // the same event again, for Streamlit alone

function openAgain() {
  repeats = true
  dispatchEvent(new PopStateEvent("popstate"))
  repeats = false
}

// Called at the end of each run of a page.
function ended({ page, query }) {
  if (page !== location.pathname.split("/").pop()) return setTimeout(openAgain)
  waits = false
  if (opened === location.href) history.replaceState({}, "", location.pathname + (query && `?${query}`))
}

export default function ({ data, setTriggerValue }) {
  wentBack = () => setTriggerValue("back", true)
  if (waits) ended(data)
  if (history.pushState.joins) return
  const push = history.pushState.bind(history)
  const replace = history.replaceState.bind(history)
  let bare = false // the URL is that of the link, and the user has done nothing since
  let path = location.pathname
  const acted = () => {
    bare = waits = false
    opened = undefined
  }
  for (const event of ["pointerdown", "keydown"]) addEventListener(event, acted, true)
  addEventListener("popstate", () => {
    if (repeats) return
    bare = false
    if (path === location.pathname) setTimeout(wentBack) // after Streamlit has asked for the page
    else awaitPage()
    path = location.pathname
  })
  const awaitPage = () => {
    opened = location.href
    waits = true
  }
  history.pushState = (state, unused, url) => {
    const { pathname, search } = new URL(url ?? "", location)
    const switches = pathname !== location.pathname
    if (waits) return
    if (switches && opened !== undefined) return awaitPage()
    // A page that *Back* has opened adds no entry by itself: the next *Back* would lead to the same page again.
    if (!switches && (opened !== undefined || (bare && !location.search))) replace(state, unused, url)
    else push(state, unused, url)
    if (opened !== undefined) opened = location.href
    bare = switches && !search
    path = location.pathname
  }
  history.pushState.joins = true
  history.replaceState = (state, unused, url) => {
    if (!waits) replace(state, unused, url)
  }
}
