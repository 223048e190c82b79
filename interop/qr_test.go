package interop

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestQRCodes draws every link as a terminal would show it, dark or light, and has zbarimg, which shares no code with
// what made it, read it back.
func TestQRCodes(t *testing.T) {
	if _, err := exec.LookPath("zbarimg"); err != nil {
		t.Fatal("zbarimg is missing: apt-get install zbar-tools")
	}
	longest := strings.Repeat("a.", 90) + "io" // 182 bytes, the most that a secret carries
	for _, test := range []struct {
		name, config string
		flags        []string
		links        int
	}{
		{"two secrets, two addresses", "public-ipv4 = \"203.0.113.7\"\npublic-ipv6 = \"2001:db8:1234:5678:9abc:def0:1234:5678\"\n" +
			secretFor("alice", "www.example.com") + secretFor("bob", "www.example.com"), nil, 4},
		{"one of them", secretFor("alice", "www.example.com") + secretFor("bob", "www.example.com"),
			[]string{"--secret", "bob", "--host", "proxy.example.org", "--port", "8443"}, 1},
		{"shortest", secretFor("a", "a.b"), []string{"--host", "a.b"}, 1},
		{"longest", secretFor("a", longest), []string{"--host", longest}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := printedLinks(t, "bind-to = \"0.0.0.0:443\"\n"+test.config, test.flags...)
			links, codes := separate(out)
			if len(links) != test.links || len(codes) != test.links {
				t.Fatalf("%d links and %d codes, want %d of each:\n%s", len(links), len(codes), test.links, out)
			}
			for i, code := range codes {
				for _, terminal := range []color.Color{color.Black, color.White} {
					if got := scan(t, screenshot(t, code, terminal)); got != links[i] {
						t.Errorf("on %v the code reads\n%q, the link is\n%q", terminal, got, links[i])
					}
				}
			}
		})
	}
}

// secretFor returns a line of configuration. No table header stands in it, so other options may follow.
func secretFor(name, host string) string {
	return fmt.Sprintf("secrets.%s = \"ee%x%x\"\n", name, fmt.Sprintf("0123456789abcde%.1s", name), host)
}

// printedLinks runs `proxy link --qr`.
func printedLinks(t *testing.T, config string, flags ...string) string {
	t.Helper()
	binary, err := binaries.plain()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary, append([]string{"link", file, "--qr"}, flags...)...).Output()
	if err != nil {
		t.Fatalf("proxy link: %v\n%s", err, out)
	}
	return string(out)
}

// separate returns the tg:// links and the lines of the codes that follow them.
func separate(out string) (links []string, codes [][]string) {
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "tg://"):
			links = append(links, line)
			codes = append(codes, nil)
		case strings.HasPrefix(line, "\x1b["):
			codes[len(codes)-1] = append(codes[len(codes)-1], line)
		}
	}
	return links, codes
}

// The colours that the codes ask for, of the 256 that terminals know (16 and 231 are black and white in all of them).
const (
	blackOnWhite = "\x1b[38;5;16;48;5;231m"
	resetColours = "\x1b[0m"
)

// screenshot renders lines of a terminal whose background is the given colour into a PNG file, and returns its path.
// Characters are 6 by 12 pixels.
func screenshot(t *testing.T, lines []string, background color.Color) string {
	t.Helper()
	const width, height, margin = 6, 12, 40
	columns := len([]rune(lines[0])) - len(blackOnWhite) - len(resetColours)
	img := image.NewPaletted(image.Rect(0, 0, columns*width+2*margin, len(lines)*height+2*margin), color.Palette{background, color.Black, color.White})
	for row, line := range lines {
		text, ok := strings.CutPrefix(line, blackOnWhite)
		text, reset := strings.CutSuffix(text, resetColours)
		if !ok || !reset || len([]rune(text)) != columns {
			t.Fatalf("line %d: %q", row, line)
		}
		for column, r := range []rune(text) {
			for y := range height {
				ink := color.Color(color.White)
				if isInked(t, r, y < height/2) {
					ink = color.Black
				}
				for x := range width {
					img.Set(margin+column*width+x, margin+row*height+y, ink)
				}
			}
		}
	}
	return save(t, img)
}

// isInked tells which half of a character is in the foreground colour.
func isInked(t *testing.T, r rune, upper bool) bool {
	t.Helper()
	switch r {
	case ' ':
		return false
	case '█':
		return true
	case '▀':
		return upper
	case '▄':
		return !upper
	}
	t.Fatalf("%q in a code", r)
	return false
}

func save(t *testing.T, img image.Image) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "screen.png")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// scan returns what zbarimg reads in a picture.
func scan(t *testing.T, file string) string {
	t.Helper()
	cmd := exec.Command("zbarimg", "--quiet", "--raw", file)
	var complaints bytes.Buffer // also that there is no D-Bus, which it would tell of the code
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("zbarimg: %v\n%s", err, &complaints)
	}
	return strings.TrimSuffix(string(out), "\n")
}
