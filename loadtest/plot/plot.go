// Package plot draws the reports of several runs of the load test into each other, so that builds, settings or relays can
// be compared by eye: memory against connections, and percentiles of latency. The drawings are SVG and refer to nothing.
package plot

import (
	"errors"
	"fmt"
	"html"
	"io"
	"strings"

	"mtrelay/loadtest"
)

// Sizes of the drawing, in pixels.
const (
	panelWidth, panelHeight = 460, 280
	left, right             = 72, 24 // of a panel: labels of its y axis, and air
	above, below            = 40, 52 // title; labels and name of its x axis
	columns                 = 2
	legendLine, noteLine    = 20, 16
	edge                    = 16
)

// colours tell the runs apart, also to those who see red and green as one. The runs beyond them are dashed.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#aa3377", "#b8860b", "#444444"}

// run is a report as it is drawn.
type run struct {
	*loadtest.Report
	name   string
	colour string
	dashed bool
}

// panel is one drawing: the axes, and what the runs have for them.
type panel struct {
	title, xName string
	x, y         axis
	lines        []line
	notesBelow   bool // in the lower right corner, not in the upper left
}

// line is a run's in a panel.
type line struct {
	run    *run
	points []point   // in the order of x, marked
	fit    *straight // drawn when there is one; else the points are joined
	note   string    // behind the run's name, in the panel's legend; "" for none
}

type point struct{ x, y float64 }

// Write draws the reports. It fails when there is nothing to draw in any of them: it takes levels of connections, as the
// scenarios idle and curve have, or latencies.
func Write(w io.Writer, reports []loadtest.Report) error {
	runs := runsOf(reports)
	panels := append(memoryPanels(runs), latencyPanels(runs)...)
	if len(panels) == 0 {
		return errors.New("nothing to plot: no run has memory at two numbers of connections or more, nor latencies")
	}
	var b strings.Builder
	rows := (len(panels) + columns - 1) / columns
	width := 2*edge + min(len(panels), columns)*(left+panelWidth+right)
	top := 2*edge + legendLine*len(runs)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		width, top+rows*(above+panelHeight+below))
	fmt.Fprint(&b, `<rect width="100%" height="100%" fill="white"/>`+"\n")
	drawLegend(&b, runs)
	for i := range panels {
		x, y := edge+left+i%columns*(left+panelWidth+right), top+above+i/columns*(above+panelHeight+below)
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", x, y)
		panels[i].draw(&b)
		fmt.Fprint(&b, "</g>\n")
	}
	fmt.Fprint(&b, "</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func runsOf(reports []loadtest.Report) (runs []*run) {
	for i := range reports {
		r := &run{Report: &reports[i], name: reports[i].Label}
		if r.name == "" {
			r.name = fmt.Sprintf("run %d", i+1)
		}
		r.colour, r.dashed = colours[i%len(colours)], i >= len(colours)
		runs = append(runs, r)
	}
	return runs
}

// drawLegend says which run is which, once for all panels.
func drawLegend(b *strings.Builder, runs []*run) {
	for i, r := range runs {
		y := edge + legendLine*i
		fmt.Fprintf(b, `<path d="M%d %dh28" %s/>`, edge, y+8, r.stroke())
		fmt.Fprintf(b, `<text x="%d" y="%d"><tspan font-weight="bold">%s</tspan> <tspan fill="#555">%s</tspan></text>`+"\n",
			edge+36, y+12, html.EscapeString(r.name), html.EscapeString(r.about()))
	}
}

// about says where a run's figures come from.
func (r *run) about() string {
	parts := []string{r.Scenario, r.Target, r.Version}
	if !r.Started.IsZero() {
		parts = append(parts, r.Started.UTC().Format("2006-01-02 15:04 UTC"))
	}
	var said []string
	for _, p := range parts {
		if p != "" {
			said = append(said, p)
		}
	}
	return strings.Join(said, ", ")
}

func (r *run) stroke() string {
	s := fmt.Sprintf(`fill="none" stroke="%s" stroke-width="2"`, r.colour)
	if r.dashed {
		s += ` stroke-dasharray="6 4"`
	}
	return s
}
