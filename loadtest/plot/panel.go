package plot

import (
	"fmt"
	"html"
	"strings"
)

func (p *panel) draw(b *strings.Builder) {
	fmt.Fprintf(b, `<text y="-14" font-size="14" font-weight="bold">%s</text>`+"\n", html.EscapeString(p.title))
	for _, t := range p.x.ticks {
		x := t.at * panelWidth
		fmt.Fprintf(b, `<path d="M%.1f 0V%d" stroke="#e4e4e4"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, panelHeight, x, panelHeight+18, t.label)
	}
	for _, t := range p.y.ticks {
		y := (1 - t.at) * panelHeight
		fmt.Fprintf(b, `<path d="M0 %.1fH%d" stroke="#e4e4e4"/><text x="-8" y="%.1f" text-anchor="end">%s</text>`+"\n",
			y, panelWidth, y+4, t.label)
	}
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="none" stroke="#999"/>`+"\n", panelWidth, panelHeight)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="#555">%s</text>`+"\n", panelWidth/2, panelHeight+38, p.xName)
	for i := range p.lines {
		p.drawLine(b, &p.lines[i])
	}
	p.drawNotes(b)
}

func (p *panel) drawLine(b *strings.Builder, l *line) {
	joined := l.points
	if l.fit != nil {
		end := l.points[len(l.points)-1].x
		joined = []point{{0, l.fit.at(0)}, {end, l.fit.at(end)}}
	}
	fmt.Fprintf(b, `<path %s d="`, l.run.stroke())
	for i, at := range joined {
		x, y := p.place(at)
		fmt.Fprintf(b, "%c%.1f %.1f", "ML"[min(i, 1)], x, y)
	}
	fmt.Fprint(b, `"/>`+"\n")
	for _, at := range l.points {
		x, y := p.place(at)
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s" stroke="white"/>`, x, y, l.run.colour)
	}
	fmt.Fprintln(b)
}

// place returns pixels from the panel's upper left corner.
func (p *panel) place(at point) (x, y float64) {
	return p.x.at(at.x) * panelWidth, (1 - p.y.at(at.y)) * panelHeight
}

// drawNotes writes into a corner that lines which rise leave free. White around the letters keeps them legible where one
// does not.
func (p *panel) drawNotes(b *strings.Builder) {
	x, y, anchor := 10, 20, "start"
	if p.notesBelow {
		x, y, anchor = panelWidth-10, panelHeight-12-noteLine*(len(p.lines)-1), "end"
	}
	for i, l := range p.lines {
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s" fill="%s" stroke="white" stroke-width="4" paint-order="stroke">%s: %s</text>`+"\n",
			x, y+noteLine*i, anchor, l.run.colour, html.EscapeString(l.run.name), html.EscapeString(l.note))
	}
}
