// A link to another page opens its bare URL, into which the page then writes what it shows. Both are one entry of
// the browser's history: with two, *Back* would lead to the bare URL, and the page would write it again.
let wentBack // tells the server that *Back* or *Forward* has changed the URL of the same page

export default function ({ setTriggerValue }) {
  wentBack = () => setTriggerValue("back", true)
  if (history.pushState.joins) return
  const push = history.pushState.bind(history)
  let bare = false // the URL is that of the link, and the user has done nothing since
  let path = location.pathname
  const acted = () => (bare = false)
  for (const event of ["pointerdown", "keydown"]) addEventListener(event, acted, true)
  addEventListener("popstate", () => {
    bare = false
    if (path === location.pathname) setTimeout(wentBack) // after Streamlit has asked for the page
    path = location.pathname
  })
  history.pushState = (state, unused, url) => {
    const { pathname, search } = new URL(url ?? "", location)
    const switches = pathname !== location.pathname
    if (bare && !switches && !location.search) history.replaceState(state, unused, url)
    else push(state, unused, url)
    bare = switches && !search
    path = location.pathname
  }
  history.pushState.joins = true
}
