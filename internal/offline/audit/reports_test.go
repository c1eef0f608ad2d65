package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/internal/offline/report"
)

const (
	openReports = "/apis/openreports.io/v1alpha1"
	policyGroup = "/apis/wgpolicyk8s.io/v1alpha2"
)

// serveReports lets the stand serve an API for reports.
func (s *stand) serveReports(base, resource, clusterResource string) {
	s.documents[base] = `{"kind":"APIResourceList"}`
	s.lists[base+"/"+resource], s.lists[base+"/"+clusterResource] = nil, nil
}

func denied(name string) *report.Result {
	return &report.Result{
		Operation: "CREATE", APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "ns0", Name: name, UID: "uid-" + name,
		Decision: report.Denied, Plugin: "PodSecurity", Message: "no",
	}
}

// TestReports checks the reports that an audit writes, and that it writes none twice.
func TestReports(t *testing.T) {
	s := newStand(t)
	s.serveReports(openReports, "reports", "clusterreports")
	s.serveReports(policyGroup, "policyreports", "clusterpolicyreports")
	ctx := t.Context()
	first, err := NewReports(ctx, s.config(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	first.now = func() time.Time { return time.Unix(7, 8) }
	many := denied("a")
	many.Warnings = []report.Finding{{Plugin: "A", Message: "w"}}
	many.Audits = []report.Finding{{Plugin: "B", Message: "x"}}
	many.Created = []*report.Result{{Operation: "CREATE", Kind: "Pod", Namespace: "ns0", Name: "a-*", Decision: report.Failed, Plugin: "C",
		Message: "y"}}
	namespace := &report.Result{
		Operation: "CREATE", APIVersion: "v1", Kind: "Namespace", Namespace: "ns0", Name: "ns0", UID: "uid-ns0", Decision: report.Allowed,
		Warnings: []report.Finding{{Message: "z"}},
	}
	allowed, unknown := denied("b"), denied("c")
	allowed.Decision, unknown.UID = report.Patched, ""
	for _, r := range []*report.Result{many, namespace, allowed, unknown} {
		if err := first.Write(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	at, clusterAt := openReports+"/namespaces/ns0/reports/fastadmit-uid-a", openReports+"/clusterreports/fastadmit-uid-ns0"
	if want := []string{"PATCH " + at, "PATCH " + clusterAt}; !slices.Equal(s.writes, want) {
		t.Fatalf("got %q, want %q", s.writes, want)
	}
	const found = `"timestamp":{"seconds":7,"nanos":8},"properties":{`
	want := `"source":"fastadmit","scope":{"apiVersion":"v1","kind":"Pod","namespace":"ns0","name":"a","uid":"uid-a"},` +
		`"summary":{"pass":0,"fail":1,"warn":2,"error":1,"skip":0},"results":[` +
		`{"source":"fastadmit","policy":"PodSecurity","result":"fail","scored":true,"message":"no",` + found + `"operation":"CREATE"}},` +
		`{"source":"fastadmit","policy":"A","result":"warn","message":"w",` + found + `"operation":"CREATE"}},` +
		`{"source":"fastadmit","policy":"B","result":"warn","message":"x",` + found + `"operation":"CREATE"}},` +
		`{"source":"fastadmit","policy":"C","result":"error","message":"y",` + found + `"object":"Pod ns0/a-*","operation":"CREATE"}}]}`
	got := s.written[at]
	if !strings.HasSuffix(got, want) || !strings.HasPrefix(got, `{"apiVersion":"openreports.io/v1alpha1","kind":"Report",`+
		`"metadata":{"name":"fastadmit-uid-a","namespace":"ns0",`) ||
		!strings.Contains(got, `"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"uid-a"}]`) {
		t.Errorf("got %s", got)
	}
	if got := s.written[clusterAt]; !strings.Contains(got, `"kind":"ClusterReport","metadata":{"name":"fastadmit-uid-ns0",`+
		`"labels"`) || !strings.Contains(got, `"policy":"fastadmit","result":"warn"`) {
		t.Errorf("got %s", got)
	}

	// The next run finds these reports, and another one.
	s.lists[openReports+"/reports"] = []string{s.written[at], `{"metadata":{"name":"fastadmit-old","namespace":"ns1"}}`}
	s.lists[openReports+"/clusterreports"] = []string{s.written[clusterAt]}
	s.writes = nil
	second, err := NewReports(ctx, s.config(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	namespace.Warnings[0].Message = "another"
	for _, r := range []*report.Result{many, namespace} {
		if err := second.Write(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := second.RemoveOld(ctx)
	if want := []string{"PATCH " + clusterAt, "DELETE " + openReports + "/namespaces/ns1/reports/fastadmit-old"}; !slices.Equal(s.writes,
		want) || removed != 1 || err != nil {
		t.Errorf("got %q, %d and %v, want %q", s.writes, removed, err, want)
	}
}

// TestReportsChanged changes reports as a user with permission to edit them could. The next audit writes
// them again.
func TestReportsChanged(t *testing.T) {
	const at = openReports + "/namespaces/ns0/reports/fastadmit-uid-a"
	f := func(old, changed string, want bool) {
		t.Helper()
		s := newStand(t)
		s.serveReports(openReports, "reports", "clusterreports")
		result := denied("a")
		result.Message, result.Warnings = "no \xff\n<ä>", []report.Finding{{Plugin: "A", Message: "w"}}
		audit := func() {
			r, err := NewReports(t.Context(), s.config(), "", nil)
			if err == nil {
				err = r.Write(t.Context(), result)
			}
			if removed, failed := r.RemoveOld(t.Context()); err != nil || failed != nil || removed != 0 {
				t.Fatalf("got %v, %v and %d removed", err, failed, removed)
			}
		}
		audit()
		stored := strings.Replace(s.written[at], old, changed, 1)
		if stored == s.written[at] && old != changed {
			t.Fatalf("%s is not in %s", old, stored)
		}
		s.lists[openReports+"/reports"], s.writes = []string{stored}, nil
		audit()
		if got := len(s.writes) > 0; got != want {
			t.Errorf("%s instead of %s: got a write %t, want %t", changed, old, got, want)
		}
	}
	f("", "", false)
	f(`"results":[`, `"other":[],"results":[`, false)
	f(`"labels":{`, `"annotations":{"a":"b"},"resourceVersion":"7","labels":{"a":"b",`, false)
	f(`"message":"w","timestamp":{"seconds":`, `"message":"w","timestamp":{"seconds":1`, false)
	f(`"results":[`, `"results":[],"Results":[`, true)
	f(`"results":[`, `"x":[`, true)
	f(`"result":"fail"`, `"result":"pass"`, true)
	f(`"fail":1`, `"fail":0`, true)
	f(`"message":"w"`, `"message":"v"`, true)
	f(`"message":"w"`, `"message":7`, true)
	f(`"scored":true,`, ``, true)
	f(`"operation":"CREATE"`, `"operation":"UPDATE"`, true)
	f(`"policy":"A"`, `"policy":"B"`, true)
	f(`"scope":{`, `"scope":{"name":"x"},"y":{`, true)
	f(`"uid":"uid-a"}]`, `"uid":"uid-b"}]`, true)
}

// TestReportAPIs checks to which API reports are written.
func TestReportAPIs(t *testing.T) {
	s := newStand(t)
	if _, err := NewReports(t.Context(), s.config(), "", nil); err == nil || !strings.Contains(err.Error(),
		"want [openreports.io/v1alpha1 wgpolicyk8s.io/v1alpha2]; install") {
		t.Errorf("got %v", err)
	}
	s.serveReports(policyGroup, "policyreports", "clusterpolicyreports")
	if _, err := NewReports(t.Context(), s.config(), ReportAPIs()[0], nil); err == nil || !strings.Contains(err.Error(),
		"want openreports.io/v1alpha1; install") {
		t.Errorf("got %v", err)
	}
	s.lists[policyGroup+"/namespaces/ns0/policyreports"] = nil
	r, err := NewReports(t.Context(), s.config(), "", []string{"ns0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(t.Context(), denied("a")); err != nil || s.requests != 1 {
		t.Errorf("got %v and %d lists", err, s.requests)
	}
	got := s.written[policyGroup+"/namespaces/ns0/policyreports/fastadmit-uid-a"]
	if !strings.Contains(got, `"kind":"PolicyReport"`) || strings.Contains(got, `"source":"fastadmit","scope"`) {
		t.Errorf("got %s", got)
	}
}

// TestReportLimits checks the limits of a report.
func TestReportLimits(t *testing.T) {
	r := &Reports{api: &reportAPIs[0]}
	for _, n := range []int{findingsMax - 1, findingsMax, findingsMax + 1} {
		many := denied("a")
		for i := range n - 1 {
			many.Warnings = append(many.Warnings, report.Finding{Plugin: "A", Message: fmt.Sprint(i)})
		}
		if o := r.report(many); len(o.Results) != min(n, findingsMax) || o.Summary.Warn != n-1 {
			t.Errorf("%d findings: got %d results, and %d counted", n, len(o.Results), o.Summary.Warn)
		}
	}
	for _, n := range []int{messageMax - 1, messageMax, messageMax + 1} {
		message := strings.Repeat("x", n)
		got := messageIn(message)
		if len(got) != min(n, messageMax) || n <= messageMax && got != message || n > messageMax && !strings.HasSuffix(got, " bytes)") {
			t.Errorf("a message of %d bytes: got %d", n, len(got))
		}
	}
	for _, n := range []int{nameMax - 1, nameMax, nameMax + 1} {
		if got := nameIn(strings.Repeat("x", n)); len(got) != min(n, nameMax) {
			t.Errorf("a name of %d bytes: got %d", n, len(got))
		}
	}
	if got := messageIn("a\n\x1b[2J\u202e\u200b"); got != "a\n"+`\x1b[2J\u202e\u200b` {
		t.Errorf("got the message %q", got)
	}
	for _, character := range []string{"x", `"`, "<", "\x01", "\u200b", "\U000e0001", "ä", "\xff"} {
		long := strings.Repeat(character, 1<<20)
		largest := denied("a")
		largest.User = long
		largest.Created = []*report.Result{{Kind: "Pod", Name: long, User: long}}
		for range findingsMax {
			largest.Created[0].Warnings = append(largest.Created[0].Warnings, report.Finding{Plugin: "A", Message: long})
		}
		text, err := json.Marshal(r.report(largest))
		if err != nil || len(text) > 3<<19 || strings.Contains(string(text), "\ufffd") {
			t.Errorf("%q: got %d bytes, %v", character, len(text), err)
		}
	}
}
