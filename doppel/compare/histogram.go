package compare

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Histogram counts two samples in the same bins.
type Histogram struct {
	Bins   []string `json:"bins"` // what is in each
	Theirs []int    `json:"theirs"`
	Ours   []int    `json:"ours"`
}

// sizeEdges are the least payloads of all bins but the first: below and around a segment, a write of 4 KiB, and alone
// in a bin the full record of TLS 1.3.
var sizeEdges = []int{64, 256, 512, 1024, 1400, 2048, 3072, 4096, 6144, 8192, 12288, 16401, 16402}

var gapEdges = []time.Duration{
	1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 8 * time.Millisecond,
	13 * time.Millisecond, 20 * time.Millisecond, 32 * time.Millisecond, 50 * time.Millisecond, 80 * time.Millisecond,
	130 * time.Millisecond,
}

// SizeHistogram is that of payloads.
func SizeHistogram(theirs, ours Sample) Histogram {
	return histogram(sizeEdges, theirs.Sizes, ours.Sizes, func(low, high int) string {
		switch {
		case low == 0:
			return fmt.Sprintf("under %d", high)
		case high == 0:
			return fmt.Sprintf("%d and more", low)
		case low+1 == high:
			return fmt.Sprint(low)
		}
		return fmt.Sprintf("%d to %d", low, high-1)
	})
}

// GapHistogram is that of gaps, in milliseconds.
func GapHistogram(theirs, ours Sample) Histogram {
	return histogram(gapEdges, theirs.Gaps, ours.Gaps, func(low, high time.Duration) string {
		switch {
		case low == 0:
			return "none, or under 1 ms"
		case high == 0:
			return fmt.Sprintf("%d ms and more", low.Milliseconds())
		}
		return fmt.Sprintf("%d to %d ms", low.Milliseconds(), high.Milliseconds())
	})
}

// histogram leaves out the empty bins at either end. label names a bin from its least value up to below the next bin's,
// which is 0 for the last.
func histogram[T number](edges []T, theirs, ours []T, label func(low, high T) string) (h Histogram) {
	a, b := count(edges, theirs), count(edges, ours)
	first, last := 0, len(a)-1
	for first < last && a[first]+b[first] == 0 {
		first++
	}
	for last > first && a[last]+b[last] == 0 {
		last--
	}
	var none T
	bounds := slices.Concat([]T{none}, edges, []T{none})
	for i := first; i <= last; i++ {
		h.Bins = append(h.Bins, label(bounds[i], bounds[i+1]))
	}
	h.Theirs, h.Ours = a[first:last+1], b[first:last+1]
	return h
}

func count[T number](edges, values []T) []int {
	n := make([]int, len(edges)+1)
	for _, v := range values {
		i, found := slices.BinarySearch(edges, v)
		if found {
			i++
		}
		n[i]++
	}
	return n
}

// barWidth is in characters.
const barWidth = 20

// Write plots both, side by side. All bars have one scale.
func (h Histogram) Write(w io.Writer) {
	theirs, ours := shares(h.Theirs), shares(h.Ours)
	scale := max(slices.Max(theirs), slices.Max(ours), 1e-9)
	width := 0
	for _, label := range h.Bins {
		width = max(width, utf8.RuneCountInString(label))
	}
	for i, label := range h.Bins {
		line := fmt.Sprintf("  %*s  %s %s  %s %s", width, label,
			bar(theirs[i]/scale), percent(theirs[i]), bar(ours[i]/scale), percent(ours[i]))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

func shares(counts []int) []float64 {
	total := sum(counts)
	s := make([]float64, len(counts))
	for i, n := range counts {
		s[i] = float64(n) / float64(max(total, 1))
	}
	return s
}

func sum(counts []int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

func percent(share float64) string {
	if share == 0 {
		return "      "
	}
	return fmt.Sprintf("%5.1f%%", 100*share)
}

// eighths are the parts of a block, from one eighth up.
var eighths = []rune("▏▎▍▌▋▊▉█")

// bar draws a share of barWidth; what is not 0 shows.
func bar(share float64) string {
	n := int(share*barWidth*8 + 0.5)
	if share > 0 {
		n = max(n, 1)
	}
	s := strings.Repeat("█", n/8)
	if n%8 > 0 {
		s += string(eighths[n%8-1])
	}
	return s + strings.Repeat(" ", barWidth-utf8.RuneCountInString(s))
}
