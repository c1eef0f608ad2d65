package report

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/fastadmit/fastadmit/internal/testbrowser"
)

// elements returns the texts of all elements with a name.
func elements(t *testing.T, page, name string) (all []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode || n.Data != name {
			continue
		}
		var text strings.Builder
		for inner := range n.Descendants() {
			if inner.Type == html.TextNode {
				text.WriteString(inner.Data)
			}
			if inner.Data == "br" {
				text.WriteString("; ")
			}
		}
		all = append(all, text.String())
	}
	return all
}

// htmlResults are the results of the tests, and one of which the cause is known.
func htmlResults() []*Result {
	return append(results(), &Result{
		File: "e.yaml", Line: 1, Kind: "Pod", Name: "x", Decision: Denied, Plugin: "P", Policy: "p", Rule: "validations[1]",
		Paths: []string{"a", "b"}, Defaulted: []string{"a"}, Message: "no", Unchecked: true,
		LeftOut: []Finding{{Plugin: "Q", Message: "privileged"}}, Warnings: []Finding{{Message: "unknown", Line: 3}},
	})
}

func TestHTML(t *testing.T) {
	page := write(t, "html", tool, htmlResults())
	want := []string{
		"allowedNamespace shop; a b.yaml:1",
		"allowedDeployment shop/web; a b.yaml:5warning by PodSecurity: would violate: xwarning: old",
		"deniedPod shop/web-*; made of Deployment shop/web; a b.yaml:5denied by PodSecurity: violates: 100%,\nand more",
		`patchedPod shop/web; c.yaml:1patched by A, B: [{"op":"add","path":"/a","value":1},{"op":"remove","path":"/b"}]` +
			"audit by C: noignored failure by D: away",
		"failedPodExecOptions of pods/exec shop/web; c.yaml:9failed by E: down <&>",
		"brokenstdin:3broken: cannot be read", "skippedd.yamlskipped: no object",
		"deniedPod x; e.yaml:1denied by P p: no; rule validations[1]; names a, b; a is not in the manifest: it has its default value" +
			"warning: e.yaml:3: unknownunchecked by Q: privileged",
	}
	if got := elements(t, page, "tr")[1:]; !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, want := range []string{
		"<p class=\"text bad\">7 objects and 1 that controllers make", `data-verdict="allowed&#10;warning"`, `data-policy="PodSecurity"`,
		"data-verdict=\"denied&#10;warning&#10;unchecked\" data-policy=\"P p&#10;Q\" data-kind=\"Pod\"",
	} {
		if !strings.Contains(strings.ReplaceAll(page, "\n", "&#10;"), want) && !strings.Contains(page, want) {
			t.Errorf("got no %s in\n%s", want, page)
		}
	}
	var noted strings.Builder
	w := newHTML(&noted, &tool)
	notes := []PolicyNote{{File: "p.yaml", Line: 7, Message: "spec.rules: <no> such resource"}}
	if err := w.Close(&Summary{PolicyNotes: notes}); err != nil {
		t.Fatal(err)
	}
	if got := elements(t, noted.String(), "p"); !slices.Contains(got, "p.yaml:7: spec.rules: <no> such resource") {
		t.Errorf("got the paragraphs %q, want a note on a policy", got)
	}
	empty := write(t, "html", tool, nil)
	if got := elements(t, empty, "tr"); len(got) != 1 || !strings.Contains(empty, "0 objects") {
		t.Errorf("got %q of nothing", got)
	}
	unchecked := write(t, "html", tool, []*Result{{Kind: "Pod", Name: "x", Decision: Allowed, Unchecked: true}})
	if !strings.Contains(unchecked, "Warning: nothing that is enabled checks any of these objects") {
		t.Errorf("got no warning in %s", unchecked)
	}
}

// TestHTMLRunsNothing requires that nothing of the input becomes an element, an attribute or a part of the script, and that
// the policy of the page allows its style and its script only.
func TestHTMLRunsNothing(t *testing.T) {
	const evil = `</td></table></style><script>alert(1)</script><img src=x onerror=alert(1)>" onclick="alert(1)' {{.}} javascript:a()`
	all := []string{evil}
	finding := []Finding{{Plugin: evil, Policy: evil, Binding: evil, Rule: evil, Paths: all, Defaulted: all, Message: evil, Line: 1}}
	r := &Result{
		File: evil, Kind: evil, Namespace: evil, Name: evil, Decision: Denied, Plugin: evil, Policy: evil, Rule: evil, Paths: all,
		Defaulted: all, Message: evil, Warnings: finding, Audits: finding, Ignored: finding,
	}
	patched := &Result{Kind: evil, Decision: Patched, PatchedBy: all, Patch: []byte(`["<script>"]`), Unchecked: true, LeftOut: finding}
	r.Created = []*Result{patched}
	var written strings.Builder
	w := newHTML(&written, &Options{Tool: evil, Version: evil})
	var s Summary
	for _, result := range []*Result{r, patched} {
		s.Add(result)
		if err := w.Write(result); err != nil {
			t.Fatal(err)
		}
	}
	s.PolicyNotes = []PolicyNote{{File: evil, Line: 1, Message: evil}}
	if err := w.Close(&s); err != nil {
		t.Fatal(err)
	}
	page := written.String()
	if got := elements(t, page, "script"); !slices.Equal(got, []string{pageScript}) {
		t.Errorf("got the scripts %q", got)
	}
	if got := elements(t, page, "style"); !slices.Equal(got, []string{pageStyle}) {
		t.Errorf("got the styles %q", got)
	}
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	known := []string{
		"html", "head", "meta", "link", "title", "style", "body", "header", "h1", "p", "form", "label", "input", "select", "option",
		"output", "table", "thead", "tbody", "tr", "th", "td", "br", "span", "code", "section", "details", "summary", "ul", "li", "script",
	}
	attributes := []string{
		"autocomplete", "charset", "class", "content", "data-kind", "data-policy", "data-verdict", "hidden", "href", "http-equiv", "id",
		"lang", "name", "open", "rel", "type", "value",
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && !slices.Contains(known, n.Data) {
			t.Errorf("got the element %s", n.Data)
		}
		for _, a := range n.Attr {
			if !slices.Contains(attributes, a.Key) || a.Key == "href" && a.Val != "data:," {
				t.Errorf("got the attribute %s=%q of %s", a.Key, a.Val, n.Data)
			}
		}
	}
	policy := fmt.Sprintf(`content="default-src 'none'; style-src %s; script-src %s; img-src data:; base-uri 'none'; form-action 'none'"`,
		digest(pageStyle), digest(pageScript))
	if at := strings.Index(page, policy); at < 0 || at > strings.Index(page, "<link") {
		t.Errorf("got no %s before all that it is about", policy)
	}
	if strings.Contains(pageStyle, "</") || strings.Contains(pageScript, "</") || strings.Contains(page, "://") {
		t.Error("got a style or a script that ends its element, or an address")
	}
}

// probe uses the filter, and reports which rows it shows, and whether the page is wider than the window.
const probe = `const before = [...document.querySelectorAll("tbody > tr")].filter(r => !r.hidden).length;
const options = [...form.elements.policy.options].map(o => o.value).join();
const shows = (name, value) => {
  form.elements[name].value = value;
  form.dispatchEvent(new Event("input"));
  const n = [...document.querySelectorAll("tbody > tr")].filter(r => r.getBoundingClientRect().height > 0).length;
  form.elements[name].value = "";
  return name + "=" + n;
};
document.body.dataset.probe = [before, options, shows("verdict", "denied"), shows("verdict", "warning"), shows("policy", "P p"),
  shows("kind", "Pod"), shows("text", "SHOP web exec"), shows("text", "nothing"), form.elements.shown.value,
  document.documentElement.scrollWidth > window.innerWidth, getComputedStyle(document.getElementById("summary")).order].join(" ");
`

var picture = flag.String("picture", "", "the folder for pictures of the page of TestBrowser")

// TestBrowser uses the filter of the page in a browser, as wide as a screen and as a phone.
func TestBrowser(t *testing.T) {
	run := testbrowser.Start(t)
	page := write(t, "html", tool, htmlResults())
	probed := strings.NewReplacer(pageScript+"</script>", pageScript+probe+"</script>", digest(pageScript),
		digest(pageScript+probe)).Replace(page)
	for _, width := range []int{1100, 500} { // a window has at least 500
		dom := run(probed, fmt.Sprintf("--window-size=%d,900", width), "--dump-dom")
		want := `data-probe="8 ,C,D,E,P p,PodSecurity,Q verdict=2 verdict=2 policy=1 kind=3 text=1 text=0 0 of 8 shown false -2"`
		if !strings.Contains(dom, want) {
			_, got, _ := strings.Cut(dom, "data-probe=")
			t.Errorf("%d pixels wide: got %.200s, want %s", width, got, want)
		}
		if *picture != "" {
			run(page, fmt.Sprintf("--window-size=%d,1100", width), fmt.Sprintf("--screenshot=%s/%d.png", *picture, width))
		}
	}
}
