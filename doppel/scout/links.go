package scout

import (
	"bytes"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// maxLinks is how many things of a small page are fetched with it.
const maxLinks = 8

// What a browser fetches by itself while it shows a page, by element and attribute.
var shownBy = map[string]string{
	"script": "src", "img": "src", "source": "src", "video": "src", "audio": "src", "embed": "src",
	"link": "href", "object": "data",
}

// Relations of a <link> that are fetched with the page. Others lead elsewhere.
var shownRels = []string{"stylesheet", "icon", "apple-touch-icon", "mask-icon", "preload", "modulepreload", "manifest"}

// assets returns the first links of a page at base to static things of the same host, at most maxLinks.
func assets(page []byte, base *url.URL) (list []*url.URL) {
	z := html.NewTokenizer(bytes.NewReader(page))
	for len(list) < maxLinks {
		switch z.Next() {
		case html.ErrorToken:
			return list
		case html.StartTagToken, html.SelfClosingTagToken:
			u := shown(z.Token(), base)
			if u != nil && !slices.ContainsFunc(list, func(v *url.URL) bool { return *u == *v }) {
				list = append(list, u)
			}
		}
	}
	return list
}

// shown returns what the element makes a browser fetch from the same host, nil when there is nothing.
func shown(element html.Token, base *url.URL) *url.URL {
	attribute := shownBy[element.Data]
	if attribute == "" || element.Data == "link" && !shownRel(element) {
		return nil
	}
	u, err := base.Parse(strings.TrimSpace(value(element, attribute)))
	if err != nil || !sameSite(u, base.Hostname()) || u.Path == base.Path && u.RawQuery == base.RawQuery {
		return nil
	}
	u.Fragment, u.RawFragment = "", ""
	return u
}

func shownRel(link html.Token) bool {
	for _, rel := range strings.Fields(strings.ToLower(value(link, "rel"))) {
		if slices.Contains(shownRels, rel) {
			return true
		}
	}
	return false
}

func value(element html.Token, attribute string) string {
	for _, a := range element.Attr {
		if a.Key == attribute {
			return a.Val
		}
	}
	return ""
}

// sameSite reports whether u is fetched from host over HTTPS.
func sameSite(u *url.URL, host string) bool {
	return u.Scheme == "https" && u.User == nil && strings.EqualFold(u.Hostname(), host)
}
