export default function ({ parentElement, setStateValue, data }) {
  // The shadow root that isolates styles has no size.
  const place = parentElement.host ?? parentElement
  let reported = data.reported
  const measure = () => {
    const exact = place.getBoundingClientRect().width
    if (exact === 0) return
    const width = exact >= data.usual * 0.95 ? data.usual : Math.floor(exact / data.step) * data.step
    if (width !== reported) {
      reported = width
      setStateValue("width", width)
    }
  }
  let timer
  const observer = new ResizeObserver(() => {
    clearTimeout(timer)
    timer = setTimeout(measure, 150)
  })
  observer.observe(place)
  measure()
  return () => {
    clearTimeout(timer)
    observer.disconnect()
  }
}
