package status_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/server/status"
	"github.com/fastadmit/fastadmit/internal/testbrowser"
)

var update = flag.Bool("update", false, "write the picture of the page for the documents")

// picture is the picture of the page in the documents.
const picture = "../../../docs/status-page.png"

// noon is when the page of the tests was made.
var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// exampleMetrics are metrics of example.
const exampleMetrics = `# HELP x y
fastadmit_build_info{version="v1.0.0",goversion="go1.26"} 1
fastadmit_requests_total{webhook="validate",operation="CREATE",decision="denied"} 3
fastadmit_requests_total{webhook="validate",operation="UPDATE",decision="denied"} 4
fastadmit_requests_total{webhook="mutate",operation="CREATE",decision="denied"} 0
fastadmit_policy_checks_total{policy="replicas",policy_binding="all",enforcement_action="deny",error_type="no_error"} 5
fastadmit_policy_checks_total{policy="owners",policy_binding="owners",enforcement_action="audit",error_type="invalid_error"} 9
fastadmit_policy_checks_total{policy="none"} 0
fastadmit_policy_cost_bucket{plugin="ValidatingAdmissionPolicy",policy="replicas",le="10"} 90
fastadmit_policy_cost_bucket{plugin="ValidatingAdmissionPolicy",policy="replicas",le="100"} 100
fastadmit_policy_cost_bucket{plugin="ValidatingAdmissionPolicy",policy="replicas",le="+Inf"} 100
fastadmit_policy_duration_seconds_bucket{plugin="ValidatingAdmissionPolicy",policy="replicas",le="1e-06"} 6
fastadmit_policy_duration_seconds_bucket{plugin="ValidatingAdmissionPolicy",policy="replicas",le="1e-05"} 6
fastadmit_policy_duration_seconds_bucket{plugin="ValidatingAdmissionPolicy",policy="replicas",le="+Inf"} 7
fastadmit_policy_cost_bucket{plugin="MutatingAdmissionPolicy",policy="owners",le="10"} 1
fastadmit_policy_cost_bucket{plugin="MutatingAdmissionPolicy",policy="owners",le="+Inf"} 2
fastadmit_policy_cost_bucket{plugin="MutatingAdmissionPolicy",policy="never",le="+Inf"} 0
fastadmit_serving_certificate_expiry_timestamp_seconds 1.796e9
fastadmit_certificate_expiry_timestamp_seconds{resource="ca"} 1.9e9
fastadmit_certificate_expiry_timestamp_seconds{resource="registered"} 0
`

// example returns a page in which everything occurs.
func example() (*status.Page, string) {
	p := &status.Page{
		Now: noon, Started: noon.Add(-26 * time.Hour), Since: noon.Add(-90 * time.Minute), Digest: "053e015b65c2f84b1e85e9a6f9b2",
		Checks: []status.Check{
			{Name: "serving", State: "ok"}, {Name: "version", State: "ok", About: "1.36"},
			{Name: "configuration", State: "failed", About: "" +
				`configuration.yaml:7: plugins[1].failurePolicy: got "Ignor", want Fail or Ignore`},
		},
		Plugins: []status.Plugin{
			{Name: "AlwaysPullImages", FailurePolicy: "Fail"},
			{Name: "PodSecurity", FailurePolicy: "Ignore", Enforcement: ", enforcement warn"},
		},
		Host:     "fastadmit-6c4f9d7b8-x2x9p",
		Replicas: "Replicas: 2 of 2 ready, 2 with the current pod template.",
		Registrations: []status.Registration{
			{Kind: "MutatingWebhookConfiguration", Name: "fastadmit", Webhooks: 2, Written: noon.Add(-3 * time.Hour), By: "fastadmit"},
			{Kind: "ValidatingWebhookConfiguration", Name: "fastadmit", Fault: "cannot read fastadmit: forbidden"},
		},
		IsTried: true, ShadowReviews: 1234,
		Shadow: []status.Difference{{
			About: "pods in shop: allowed to denied by PodSecurity", Reviews: 12,
			Example: "CREATE shop/web-7d4b9\nallowed\nnow denied by PodSecurity: violates PodSecurity \"restricted:latest\"",
		}},
		RecentMax: 50,
		Recent: []status.Decision{{
			Time: noon.Add(-time.Minute), Endpoint: "validate", Plugin: "ValidatingAdmissionPolicy", Decision: "denied",
			UID: "7f64415c-afa3", User: "jane", IsExplained: true,
			Operation: "CREATE", Resource: "deployments.apps", Subresource: "scale", Namespace: "shop", Name: "web",
			Message: "ValidatingAdmissionPolicy: deployments.apps \"web\" is forbidden: replicas must be no more than 5",
		}},
		Limits: []status.Limit{
			{Name: "Requests in flight", Used: 3, Max: 1000}, {Name: "Memory for reviews", Used: 85 << 20, Max: 90 << 20, Bytes: true},
			{Name: "Without a maximum", Used: 7},
		},
	}
	var m strings.Builder
	m.WriteString(exampleMetrics)
	for i, labels := range []string{`plugin="PodSecurity",phase="validate"`, `plugin="AlwaysPullImages",phase="mutate"`,
		`plugin="AlwaysPullImages",phase="validate"`, `plugin="Gone",phase="mutate"`} {
		for j, decision := range p.Outcomes() {
			fmt.Fprintf(&m, "fastadmit_plugin_decisions_total{%s,decision=%q} %d\n", labels, decision, (i+1)*100>>(2*j))
		}
		for j, most := range []string{"5e-05", "0.0001", "0.001", "30", "+Inf"} {
			fmt.Fprintf(&m, "fastadmit_plugin_duration_seconds_bucket{%s,le=%q} %d\n", labels, most, []int{0, 60, 98, 100, 100}[j])
		}
	}
	return p, m.String()
}

func write(t *testing.T, p *status.Page, metrics string) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b, metrics); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// rows returns the text of the rows of a table, with cells divided by " | ".
func rows(t *testing.T, page, id string) (all []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Data != "table" || n.Attr[len(n.Attr)-1].Val != id {
			continue
		}
		for row := range n.Descendants() {
			if row.Data != "tr" {
				continue
			}
			var cells []string
			for cell := range row.ChildNodes() {
				var words []string
				for text := range cell.Descendants() {
					if text.Type == html.TextNode {
						words = append(words, strings.TrimSpace(text.Data))
					}
				}
				cells = append(cells, strings.Join(words, " "))
			}
			all = append(all, strings.Join(cells, " | "))
		}
	}
	return all
}

func TestPage(t *testing.T) {
	p, metrics := example()
	page := write(t, p, metrics)
	for _, want := range []string{
		"v1.0.0, go1.26. Started 2026-11-25 10:00:00 UTC, 26h0m0s ago. ",
		"Configuration <code>053e015b65c2</code> since 2026-11-26 10:30:00 UTC, 1h30m0s ago.",
		"1 of the checks below fail.", "The last 50.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("got no %q", want)
		}
	}
	f := func(id string, want ...string) {
		t.Helper()
		if got := rows(t, page, id); strings.Join(got[1:], "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", id, strings.Join(got[1:], "\n"), strings.Join(want, "\n"))
		}
	}
	f("checks", "serving | ok | ", "version | ok | 1.36",
		`configuration | failed | configuration.yaml:7: plugins[1].failurePolicy: got "Ignor", want Fail or Ignore`)
	f("plugins", // in the order of the plugins, without those that are no longer enabled
		"AlwaysPullImages mutate, failure policy Fail | 200 | 50 | 12 | 3 | 0 | 0 | 0 | ≤ 100µs | ≤ 30s",
		"AlwaysPullImages validate, failure policy Fail | 300 | 75 | 18 | 4 | 1 | 0 | 0 | ≤ 100µs | ≤ 30s",
		"PodSecurity validate, failure policy Ignore, enforcement warn | 100 | 25 | 6 | 1 | 0 | 0 | 0 | ≤ 100µs | ≤ 30s")
	f("endpoints", "/validate | 0 | 0 | 7 | 0 | 0 | 0 | 0 |  | ")
	f("policies", "owners | audit, invalid_error | 9", "replicas, binding all | deny | 5")
	f("recent", "11:59:00 | denied by ValidatingAdmissionPolicy /validate | CREATE deployments.apps/scale shop/web by jane, "+
		`UID 7f64415c-afa3, explain | ValidatingAdmissionPolicy: deployments.apps "web" is forbidden: replicas must be no more than 5`)
	f("shadow", "pods in shop: allowed to denied by PodSecurity | CREATE shop/web-7d4b9\nallowed\nnow denied by PodSecurity: "+
		`violates PodSecurity "restricted:latest" | 12 reviews`)
	f("registrations", "fastadmit MutatingWebhookConfiguration | 2026-11-26 09:00:00 UTC, 3h0m0s ago, by fastadmit | 2 webhooks",
		"fastadmit ValidatingWebhookConfiguration | cannot read fastadmit: forbidden | 0 webhooks")
	f("certificates", "serving certificate | 2026-11-30 00:53:20 UTC, in 3 days",
		"CA that signs it | 2030-03-17 17:46:40 UTC, in 1207 days")
	f("costs", "owners MutatingAdmissionPolicy | 2 | ≤ 10 | more |  | ",
		"replicas ValidatingAdmissionPolicy | 100 | ≤ 10 | ≤ 100 | ≤ 1µs | > 10µs")
	f("limits", "Requests in flight | 3 of 1000 | 1 %", "Memory for reviews | 85.0 MiB of 90.0 MiB | 95 %", "Without a maximum | 7 | ")
	page = write(t, new(status.Page), "nonsense{\na{b} 1\na{b=\"c} 1\n x 1\na{b=\"c\"} d\n")
	if !strings.Contains(page, "No review was answered yet") || !strings.Contains(page, "<code>--recent-denials</code> is 0") {
		t.Errorf("of an empty server: got %s", page)
	}
}

// TestHostile has texts of a tenant in all fields: they stay texts, and are visible.
func TestHostile(t *testing.T) {
	const evil = "</td><script>alert(1)</script><img src=x onerror=alert(1)>\"'\u202e\u200b\x1b[31m\u3164"
	p, _ := example()
	p.Digest, p.Host, p.ShadowStopped, p.Replicas = evil, evil, evil, evil
	p.Registrations = []status.Registration{{Kind: evil, Name: evil, By: evil, Fault: evil}}
	p.Checks = []status.Check{{Name: evil, State: evil, About: evil}}
	p.Plugins = []status.Plugin{{Name: "a", FailurePolicy: evil, Enforcement: evil}}
	p.Recent = []status.Decision{{
		Time: noon, Endpoint: evil, Plugin: evil, Decision: evil, UID: evil, User: evil, Operation: evil, Resource: evil,
		Subresource: evil, Namespace: evil, Name: evil, Message: evil, IsExplained: true,
	}}
	p.Shadow = []status.Difference{{About: evil, Example: evil}}
	p.Limits = []status.Limit{{Name: evil, Used: math.NaN(), Max: math.Inf(1)}}
	page := write(t, p, fmt.Sprintf("fastadmit_policy_checks_total{policy=%q,enforcement_action=%[1]q} 1\n"+
		"fastadmit_policy_cost_bucket{policy=%[1]q,plugin=%[1]q,le=\"1\"} 1\n"+
		"fastadmit_build_info{version=%[1]q} 1\n", evil))
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && (n.Data == "script" || n.Data == "img") {
			t.Errorf("got the element %s", n.Data)
		}
	}
	for _, id := range []string{"recent", "shadow", "registrations", "costs"} {
		row := rows(t, page, id)[1]
		if strings.ContainsFunc(row, func(r rune) bool { return !codec.IsPrintable(r) }) || !strings.Contains(row, `\u202e`) {
			t.Errorf("got %q, want all characters visible", row)
		}
	}
}

// keep adds a decision about a review with a UID, whose object has at least so many bytes. It returns the review.
func keep(t *testing.T, kept *status.Recent, uid, message string, bytes int) string {
	t.Helper()
	body := fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":%q,"operation":"CREATE",`+
		`"resource":{"group":"apps","version":"v1","resource":"deployments"},"name":"n","object":{"x":%q}}}`,
		uid, strings.Repeat("x", bytes))
	text := string(body)
	review := codec.Acquire()
	defer review.Release() // with the tag poison, this overwrites what must not be kept
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	kept.Add(status.Decision{Message: message}, review, body)
	return text
}

// TestRecentReviews tests that the reviews of the last decisions are kept, within bounds.
func TestRecentReviews(t *testing.T) {
	kept := status.NewRecent(40)
	explained := func() (n int) {
		for _, d := range kept.All() {
			if d.IsExplained {
				n++
			}
		}
		return n
	}
	const overhead = 300 // more than the rest of a review has
	for i := range 100 {
		uid := fmt.Sprintf("uid-%d", i)
		body := keep(t, kept, uid, "denied", 64<<10-overhead)
		if d, got, ok := kept.Find(uid); !ok || string(got) != body || d.UID != uid || d.Message != "denied" {
			t.Fatalf("got %+v, %.100s, %t, want the last review", d, got, ok)
		}
		if got, want := explained(), min(i+1, 16); got != want {
			t.Fatalf("after %d: got %d reviews, want %d", i+1, got, want)
		}
	}
	if _, _, ok := kept.Find("uid-0"); ok {
		t.Error("found a review that is gone")
	}
	keep(t, kept, "large", "denied", 64<<10)
	if _, _, ok := kept.Find("large"); ok || kept.All()[0].UID != "large" || explained() != 16 {
		t.Errorf("got %d reviews, want the large one not kept, and those that were", explained())
	}
	for range 100 {
		keep(t, kept, "same", "denied", 0)
	}
	if got := explained(); got != 40 {
		t.Errorf("got %d small reviews, want all", got)
	}
	if _, _, ok := status.NewRecent(0).Find("x"); ok {
		t.Error("found a review where none is kept")
	}
}

// TestRecent tests that the last decisions are kept, that they are short, and that they do not refer to the review.
func TestRecent(t *testing.T) {
	if none := status.NewRecent(0); none != nil || none.All() != nil || none.Max() != 0 {
		t.Errorf("got %v, want none", none)
	}
	kept := status.NewRecent(3)
	add := func(uid, message string) { keep(t, kept, uid, message, 0) }
	for i := range 5 {
		add(fmt.Sprintf("uid-%d", i), strings.Repeat("m", 5000))
		var got []string
		for _, d := range kept.All() {
			got = append(got, d.UID)
			if len(d.Message) > 1024 || d.Resource != "deployments.apps" || d.Name != "n" || d.Operation != "CREATE" {
				t.Errorf("got %+v", d)
			}
		}
		var want []string
		for j := i; j >= max(i-2, 0); j-- {
			want = append(want, fmt.Sprintf("uid-%d", j))
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	add(strings.Repeat("u", 5000), "")
	if got := len(kept.All()[0].UID); got > 253 {
		t.Errorf("kept a UID of %d bytes", got)
	}
}

// probe reports what a browser shows: whether the page is wider than the window, and the height of each table.
const probe = `<script>
const heights = [...document.querySelectorAll("table")].map(t => t.id + "=" + (t.getBoundingClientRect().height > 20));
document.body.dataset.probe = heights.join(" ") + " wide=" + (document.documentElement.scrollWidth > window.innerWidth);
</script>`

// TestBrowser looks at the page in a browser, as wide as a screen and as a phone. With -update, it takes the picture for the documents.
func TestBrowser(t *testing.T) {
	run := testbrowser.Start(t)
	p, metrics := example()
	page := write(t, p, metrics)
	for _, width := range []int{1100, 500} { // a window has at least 500
		dom := run(strings.Replace(page, "</body>", probe+"</body>", 1), fmt.Sprintf("--window-size=%d,900", width), "--dump-dom")
		want := `data-probe="checks=true registrations=true certificates=true plugins=true endpoints=true policies=true ` +
			`costs=true shadow=true recent=true limits=true wide=false"`
		if !strings.Contains(dom, want) {
			_, got, _ := strings.Cut(dom, "data-probe=")
			t.Errorf("%d pixels wide: got %.200s, want %s", width, got, want)
		}
	}
	if *update {
		run(page, "--window-size=1100,2300", "--screenshot="+picture)
	}
	if _, err := os.Stat(picture); err != nil {
		t.Errorf("%v: go test -run TestBrowser -update takes it", err)
	}
}
