package stats

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"
)

// TestDescriptorsLikeTheLibrary, which counts them by listing them.
func TestDescriptorsLikeTheLibrary(t *testing.T) {
	for range 50 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	var ours, theirs bytes.Buffer
	writeDescriptors(&ours)
	metrics.WriteFDMetrics(&theirs)
	for name, want := range parse(t, theirs.String()) {
		if strings.HasSuffix(name, "open_fds") {
			want-- // of the list itself
		}
		if got := parse(t, ours.String())[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// TestScrapeIsFlat in the number of descriptors.
func TestScrapeIsFlat(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var b bytes.Buffer
	writeDescriptors(&b)
	few := testing.AllocsPerRun(10, func() { b.Reset(); writeDescriptors(&b) })
	for range 500 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if many := testing.AllocsPerRun(10, func() { b.Reset(); writeDescriptors(&b) }); many > few+2 {
		t.Errorf("%v allocations with 500 more descriptors, %v without", many, few)
	}
}
