package plot

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"mtrelay/loadtest"
)

// latencyPanels makes a panel of every kind of latency, such as alone and beside bulk. They share their axes, so that the
// kinds compare as well as the runs do.
func latencyPanels(runs []*run) (panels []panel) {
	highest, low, high := 0.0, math.Inf(1), 0.0
	for _, kind := range latencyKinds(runs) {
		p := panel{title: "latency, " + kind, xName: "percentile", notesBelow: true}
		for _, r := range runs {
			points := latencyPoints(r.Latency[kind])
			if len(points) == 0 {
				continue
			}
			for _, at := range points {
				highest, low, high = max(highest, at.x), min(low, at.y), max(high, at.y)
			}
			p.lines = append(p.lines, line{run: r, points: points, note: latencyNote(points)})
		}
		if p.lines != nil {
			panels = append(panels, p)
		}
	}
	for i := range panels {
		panels[i].x = tail(highest)
		panels[i].y = logarithmic(low, high, func(v float64) string { return plain(v) + " ms" })
	}
	return panels
}

func latencyKinds(runs []*run) []string {
	kinds := make(map[string]bool)
	for _, r := range runs {
		for kind := range r.Latency {
			kinds[kind] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// latencyPoints leaves out what has no place on the axes: the maximum, which is the percentile 100, and 0 ms.
func latencyPoints(list []loadtest.Percentile) (points []point) {
	for _, p := range list {
		if p.Percentile >= 0 && p.Percentile < 100 && p.Ms > 0 {
			points = append(points, point{p.Percentile, p.Ms})
		}
	}
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	return points
}

func latencyNote(points []point) string {
	var said []string
	for _, p := range points {
		if p.x == 50 || p.x == 99 || p.x == 99.9 {
			said = append(said, fmt.Sprintf("p%g %.3g ms", p.x, p.y))
		}
	}
	return strings.Join(said, ", ")
}
