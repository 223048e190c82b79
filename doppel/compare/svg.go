package compare

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"
)

// Numbers of the drawing, in pixels unless they say otherwise.
const (
	panelWidth, panelHeight = 420, 220
	margin                  = 48
	rowHeight               = panelHeight + 2*margin
	svgWidth                = 2*panelWidth + 3*margin
	steps                   = 300        // of a curve
	shortestGap, longestGap = 0.5, 250.0 // ms
)

const (
	theirColour = "#1b6ca8"
	ourColour   = "#d1495b"
)

// tick is a mark on an axis, at from 0 to 1.
type tick struct {
	at    float64
	label string
}

// WriteSVG draws the distribution functions of sizes and of gaps, a row for each front.
func WriteSVG(w io.Writer, reports []*Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		svgWidth, rowHeight*len(reports))
	fmt.Fprint(&b, `<rect width="100%" height="100%" fill="white"/>`+"\n")
	for i, r := range reports {
		top := i*rowHeight + margin
		drawPanel(&b, margin, top, r.Front+": payload of records, bytes", sizeTicks(),
			curve(r.Theirs.Sizes, sizeAt), curve(r.Ours.Sizes, sizeAt))
		drawPanel(&b, 2*margin+panelWidth, top, "gaps between them, ms", gapTicks(),
			curve(r.Theirs.Gaps, gapAt), curve(r.Ours.Gaps, gapAt))
	}
	fmt.Fprint(&b, "</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func sizeAt(x float64) int { return int(x * maxSize) }

const maxSize = 16640

func sizeTicks() (list []tick) {
	for _, size := range []int{0, 4096, 8192, 12288, 16401} {
		list = append(list, tick{float64(size) / maxSize, fmt.Sprint(size)})
	}
	return list
}

// gapAt is logarithmic; what is shorter than the left end begins there.
func gapAt(x float64) time.Duration {
	return time.Duration(shortestGap * math.Pow(longestGap/shortestGap, x) * float64(time.Millisecond))
}

func gapTicks() (list []tick) {
	for _, ms := range []float64{1, 3, 10, 30, 100, 250} {
		list = append(list, tick{math.Log(ms/shortestGap) / math.Log(longestGap/shortestGap), fmt.Sprint(ms)})
	}
	return list
}

// curve is the distribution function of a sample over its axis, as values from 0 to 1.
func curve[T number](sample []T, at func(x float64) T) (ys []float64) {
	if len(sample) == 0 {
		return nil
	}
	sample = sorted(sample)
	for i := range steps + 1 {
		ys = append(ys, cdf(sample, at(float64(i)/steps)))
	}
	return ys
}

func drawPanel(b *strings.Builder, left, top int, title string, ticks []tick, theirs, ours []float64) {
	fmt.Fprintf(b, `<g transform="translate(%d %d)">`+"\n", left, top)
	fmt.Fprintf(b, `<text y="-12" font-weight="bold">%s</text>`+"\n", html.EscapeString(title))
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="none" stroke="#999"/>`+"\n", panelWidth, panelHeight)
	for _, t := range ticks {
		x := t.at * panelWidth
		fmt.Fprintf(b, `<path d="M%.1f 0V%d" stroke="#eee"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, panelHeight, x, panelHeight+16, t.label)
	}
	drawCurve(b, theirs, theirColour, "theirs", 16)
	drawCurve(b, ours, ourColour, "ours", 32)
	fmt.Fprint(b, "</g>\n")
}

func drawCurve(b *strings.Builder, ys []float64, colour, name string, legend int) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" fill="%s">%s</text>`+"\n", panelWidth-8, panelHeight-legend, colour, name)
	if ys == nil {
		return
	}
	fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="1.5" d="M0 %.1f`, colour, (1-ys[0])*panelHeight)
	for i, y := range ys[1:] {
		if y == ys[i] && i+2 < len(ys) && ys[i+2] == y { // in the middle of a flat stretch
			continue
		}
		fmt.Fprintf(b, "L%.1f %.1f", float64(i+1)/steps*panelWidth, (1-y)*panelHeight)
	}
	fmt.Fprint(b, `"/>`+"\n")
}
