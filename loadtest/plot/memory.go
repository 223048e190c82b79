package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"mtrelay/loadtest"
)

// connectionsColumn is the name of the column that the memory is drawn against.
const connectionsColumn = "connections"

// byteUnits are the units of columns that are memory.
var byteUnits = map[string]float64{"B": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// memoryPanels makes a panel of every kind of memory that a run has at two numbers of connections or more.
func memoryPanels(runs []*run) (panels []panel) {
	for _, kind := range memoryColumns(runs) {
		p := panel{title: kind, xName: connectionsColumn}
		var most, top float64
		for _, r := range runs {
			points := memoryPoints(r.Report, kind)
			if len(points) == 0 {
				continue
			}
			for _, at := range points {
				most, top = max(most, at.x), max(top, at.y)
			}
			fit := fitLine(loaded(points))
			p.lines = append(p.lines, line{run: r, points: points, fit: &fit, note: fit.String()})
		}
		const mib = 1 << 20
		p.x = linear(most, 5, thousands)
		y := linear(top/mib, 5, func(v float64) string { return plain(v) + " MiB" })
		p.y = axis{at: func(v float64) float64 { return y.at(v / mib) }, ticks: y.ticks}
		panels = append(panels, p)
	}
	return panels
}

// memoryColumns lists the names of what can be drawn, in the order in which the reports have them.
func memoryColumns(runs []*run) (names []string) {
	for _, r := range runs {
		for _, c := range r.Columns {
			if byteUnits[c.Unit] > 0 && !slices.Contains(names, c.Name) && memoryPoints(r.Report, c.Name) != nil {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

// memoryPoints returns the bytes of a kind by connections, sorted by them; nil if that would be no line, or all zero, which
// stands for what was not measured. Rows with connections of another kind among them are left out.
func memoryPoints(r *loadtest.Report, kind string) (points []point) {
	x, y := column(r, connectionsColumn), column(r, kind)
	if x < 0 || y < 0 {
		return nil
	}
	unit, zero := byteUnits[r.Columns[y].Unit], true
	for _, row := range r.Rows {
		if len(row) == len(r.Columns) && !busy(r, row) {
			points = append(points, point{row[x], row[y] * unit})
			zero = zero && row[y] == 0
		}
	}
	slices.SortStableFunc(points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	if zero || points[0].x == points[len(points)-1].x {
		return nil
	}
	return points
}

// column returns the index of a column, -1 when there is none of that name.
func column(r *loadtest.Report, name string) int {
	return slices.IndexFunc(r.Columns, func(c loadtest.Column) bool { return c.Name == name })
}

// busy tells whether some connections of a row, of the scenario curve, are not idle.
func busy(r *loadtest.Report, row []float64) bool {
	for _, name := range []string{"active", "stuck"} {
		if i := column(r, name); i >= 0 && row[i] > 0 {
			return true
		}
	}
	return false
}

// straight is y = base + slope·x.
type straight struct {
	base, slope float64
	off         float64 // the largest distance of a point, as a part of the line's value there
}

// loaded leaves out the points with no connections where there is a line without them: as in the metrics of a report, what
// the first connections cost beside their own memory is not part of what each costs.
func loaded(points []point) []point {
	first := slices.IndexFunc(points, func(p point) bool { return p.x > 0 })
	if rest := points[first:]; rest[0].x < rest[len(rest)-1].x {
		return rest
	}
	return points
}

// fitLine is the line of least squares. The points are at two places at least.
func fitLine(points []point) (s straight) {
	var mean point
	for _, p := range points {
		mean.x += p.x / float64(len(points))
		mean.y += p.y / float64(len(points))
	}
	var xx, xy float64
	for _, p := range points {
		xx += (p.x - mean.x) * (p.x - mean.x)
		xy += (p.x - mean.x) * (p.y - mean.y)
	}
	s.slope = xy / xx
	s.base = mean.y - s.slope*mean.x
	for _, p := range points {
		s.off = max(s.off, math.Abs(p.y/s.at(p.x)-1))
	}
	return s
}

func (s straight) at(x float64) float64 { return s.base + s.slope*x }

func (s straight) String() string {
	return fmt.Sprintf("%s + %s each, within %.1f %%", inBytes(s.base), inBytes(s.slope), 100*s.off)
}
