package scout

import (
	"net/url"
	"strings"
	"testing"
)

func TestAssets(t *testing.T) {
	base, _ := url.Parse("https://front.test/dir/")
	for _, c := range []struct{ page, want string }{
		{`<img src="a.png"><img src=/b.png><IMG SRC='//front.test/c.png#x'>`, "/dir/a.png /b.png /c.png"},
		{`<script src="https://FRONT.test/s.js?v=1"></script>`, "/s.js?v=1"},
		{`<link rel="StyleSheet" href=s.css><link rel=canonical href=/other><link href=/none>`, "/dir/s.css"},
		{`<link rel="shortcut icon" href="/favicon.ico"><link rel="preload nothing" href="/f.woff2">`, "/favicon.ico /f.woff2"},
		{`<video src=v.mp4><source src=w.mp4></video><object data=o></object>`, "/dir/v.mp4 /dir/w.mp4 /dir/o"},
		{`<a href="/page"><form action="/f"><iframe src="/i">`, ""},
		{`<img src="http://front.test/a"><img src="https://other.test/a"><img src="data:image/png;base64,AA">`, ""},
		{`<img src="https://user@front.test/a"><img src="https://front.test.evil.test/a">`, ""},
		{`<img src=""><img src="#x"><img src="/dir/"><img src="%zz"><img>`, ""},
		{`<img src=a><img src=a><img src="a#b">`, "/dir/a"},
		{`<!-- <img src=a> --><script>"<img src=b>"</script><textarea><img src=c></textarea>`, ""},
		{`<img src=a`, ""},
		{strings.Repeat(`<img src=a`, 1000), ""},
		{"\x00\xff<img src=a>", "/dir/a"},
		{`<img src=1><img src=2><img src=3><img src=4><img src=5><img src=6><img src=7><img src=8><img src=9>`,
			"/dir/1 /dir/2 /dir/3 /dir/4 /dir/5 /dir/6 /dir/7 /dir/8"},
	} {
		var got []string
		for _, u := range assets([]byte(c.page), base) {
			got = append(got, u.RequestURI())
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %q, want %q", c.page, s, c.want)
		}
	}
}
