// A link to another page opens its bare URL, into which the page then writes what it shows. Both are one entry of
// the browser's history: with two, *Back* would lead to the bare URL, and the page would write it again.
export default function () {
  if (history.pushState.joins) return
  const push = history.pushState.bind(history)
  let bare = false // the URL is that of the link, and the user has done nothing since
  const acted = () => (bare = false)
  for (const event of ["pointerdown", "keydown"]) addEventListener(event, acted, true)
  addEventListener("popstate", acted)
  history.pushState = (state, unused, url) => {
    const { pathname, search } = new URL(url ?? "", location)
    const switches = pathname !== location.pathname
    if (bare && !switches && !location.search) history.replaceState(state, unused, url)
    else push(state, unused, url)
    bare = switches && !search
  }
  history.pushState.joins = true
}
