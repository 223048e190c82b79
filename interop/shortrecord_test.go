package interop

import (
	"errors"
	"io"
	"slices"
	"testing"

	"mtrelay/relay/relaytest"
)

// TestNoShortRecord: whatever the DC writes at once, no remainder of it becomes a record that TLS 1.3 cannot have: the
// least holds a byte of data, its content type and a 16-byte tag.
func TestNoShortRecord(t *testing.T) {
	const full, least = 16401, 18
	bothDownlinks(t, func(t *testing.T, s *scene) {
		for whole := 1; whole <= 4; whole++ {
			for _, rest := range []int{0, 1, 5, 17, 18, 19} {
				var records recordSizes
				n := whole*full + rest
				job := s.onDC(func(c *relaytest.DCConn) error {
					_, err := c.Write(pattern(n))
					return errors.Join(err, expectEOF(c))
				})
				c := s.dial(t, job.id, relaytest.OnRecord(records.note))
				if _, err := io.CopyN(io.Discard, c, int64(n)); err != nil {
					t.Fatal(err)
				}
				if slices.Min(records) < least {
					t.Errorf("%d bytes came in records of %d", n, records)
				}
				c.Close()
			}
		}
	})
}
