package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

const validException = `{"metadata":{"name":"e"},"spec":{"policies":["p.example.com","q"],"plugins":["PodSecurity"],
	"matchConstraints":{"resourceRules":[{` + ruleFields + `}]},"matchConditions":[{"name":"c","expression":"true"}],
	"reason":"until it is rewritten","expiresAt":"2027-01-31T00:00:00Z"}}`

// TestCheckException changes a valid exception in one place each.
func TestCheckException(t *testing.T) {
	const names = `a lowercase RFC 1123 subdomain`
	testCheck(t, validException, checkException, [][2]string{
		{`{}`, ``},
		{`{"metadata":{"name":"A"}}`, `metadata.name: Invalid value: "A": ` + names},
		{`{"spec":{"policies":null}}`, ``},
		{`{"spec":{"plugins":null}}`, ``},
		{`{"spec":{"plugins":null,"policies":[]}}`, `spec.policies: Required value: policies or plugins must contain at least one item
			spec.plugins: Required value: policies or plugins must contain at least one item`},
		{`{"spec":{"policies":["p","p"]}}`, `spec.policies[1]: Duplicate value: "p"`},
		{`{"spec":{"policies":["p*"]}}`, `spec.policies[0]: Invalid value: "p*": ` + names},
		{`{"spec":{"plugins":["A",""]}}`, `spec.plugins[1]: Invalid value: "": want the name of a plugin, such as PodSecurity`},
		{`{"spec":{"plugins":["A","A"]}}`, `spec.plugins[1]: Duplicate value: "A"`},
		{`{"spec":{"plugins":[` + strings.Repeat(`"A",`, 128) + `"A"]}}`, `spec.plugins: Too many: 129: must have at most 128 items`},
		{`{"spec":{"matchConstraints":null}}`, `spec.matchConstraints: Required value`},
		{`{"spec":{"matchConstraints":{"resourceRules":null}}}`, `spec.matchConstraints.resourceRules: Required value`},
		{`{"spec":{"matchConstraints":{"matchPolicy":"X"}}}`, `spec.matchConstraints.matchPolicy: Unsupported value: "X"`},
		{`{"spec":{"matchConditions":[{"name":"","expression":"true"}]}}`, `spec.matchConditions[0].name: Required value`},
		{`{"spec":{"reason":" "}}`, `spec.reason: Required value: say why there is the exception`},
		{`{"spec":{"reason":"` + strings.Repeat("a", 1025) + `"}}`, `spec.reason: Too long: may not be more than 1024 bytes`},
		{`{"spec":{"expiresAt":null}}`, `spec.expiresAt: Required value: want a time such as 2027-01-31T00:00:00Z; an exception without ` +
			`an end needs neverExpires: true`},
		{`{"spec":{"expiresAt":null,"neverExpires":true}}`, ``},
		{`{"spec":{"neverExpires":true}}`, `spec.expiresAt: Forbidden: neverExpires is true`},
		{`{"spec":{"expiresAt":"2027-01-31"}}`,
			`spec.expiresAt: Invalid value: "2027-01-31": want a time in RFC 3339, such as 2027-01-31T00:00:00Z`},
	})
}

// exceptionOf compiles an exception, a change of the valid one (RFC 7396) without matchConditions.
func exceptionOf(t testing.TB, change string) *exception {
	t.Helper()
	text, err := jsonpatch.MergePatch([]byte(validException), []byte(`{"spec":{"matchConditions":null}}`))
	if err == nil {
		text, err = jsonpatch.MergePatch(text, []byte(change))
	}
	document := new(ExceptionDocument)
	if err == nil {
		err = json.Unmarshal(text, document)
	}
	if err != nil {
		t.Fatal(err)
	}
	e, errs := compileException(document, new(admission.Setup))
	if errs != nil {
		t.Fatal(errs)
	}
	return e
}

// excepting are exceptions with what they count and log.
type excepting struct {
	*Exceptions
	log bytes.Buffer
}

func newExcepting(t testing.TB, all ...*exception) *excepting {
	x := new(excepting)
	view := viewOf(t, staticConfig)
	x.Exceptions = newExceptions(&Cluster{Namespaces: cluster.Namespaces.In(view), Access: cluster.AccessIn(view)}, view)
	x.Exceptions.log, x.series.set = slog.New(slog.NewTextHandler(&x.log, nil)), metrics.NewSet()
	x.static = all
	x.use(nil)
	return x
}

// lifted returns the exception that lifts what a policy says against a review.
func (x *excepting) lifted(ctx context.Context, review *codec.Review, policy string, now time.Time) string {
	d := new(Dispatch)
	d.Begin(ctx, review, x.cluster)
	defer d.End()
	d.exceptions = x.all.Load()
	if d.exceptions.policies[policy] == nil {
		return d.Excepted(policy)
	}
	return d.lift(policy, now)
}

func (x *excepting) counted(exception, policy, result string) uint64 {
	return x.series.newCounter(exceptionResult{exception, "ValidatingAdmissionPolicy", policy, result}).Get()
}

var beforeTheEnd = time.Date(2027, 1, 30, 0, 0, 0, 0, time.UTC)

// TestExceptionMatches tests which requests an exception is for.
func TestExceptionMatches(t *testing.T) {
	f := func(change string, body []byte, want bool) {
		t.Helper()
		x := newExcepting(t, exceptionOf(t, change))
		if got := x.lifted(t.Context(), reviewOf(t, body), "q", beforeTheEnd); (got == "e") != want {
			t.Errorf("%s: %s: got %q, want it lifted: %v", change, body, got, want)
		}
	}
	rule := func(resources, more string) string {
		return `{"spec":{"matchConstraints":{"resourceRules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["v1"],"resources":[` +
			resources + `]}]` + more + `}}}`
	}
	const labelled, bare = `{"metadata":{"name":"n","labels":{"a":"b"}}}`, `{"metadata":{"name":"n"}}`
	create := func(object string) []byte { return admissiontest.Body(codec.Create, "v1/pods", object) }
	f(`{}`, create(bare), true)
	f(`{}`, admissiontest.UpdateBody("v1/pods", bare, bare), false) // the rule has CREATE only
	f(`{}`, admissiontest.Body(codec.Create, "v1/services", bare), false)
	// The objectSelector is for the object that is stored.
	const objects = `,"objectSelector":{"matchLabels":{"a":"b"}}`
	selects := rule(`"pods"`, objects)
	f(selects, create(labelled), true)
	f(selects, create(bare), false)
	f(selects, admissiontest.UpdateBody("v1/pods", labelled, bare), true)
	f(selects, admissiontest.UpdateBody("v1/pods", bare, labelled), false)
	f(selects, []byte(strings.NewReplacer(`"object":`+bare, `"object":null`, `"UPDATE"`, `"DELETE"`).Replace(
		string(admissiontest.UpdateBody("v1/pods", bare, labelled)))), true)
	f(selects, []byte(strings.Replace(string(create(`{"kind":"PodExecOptions"}`)), `"CREATE"`, `"CONNECT"`, 1)), false)
	// The namespaceSelector is for objects in namespaces, and Namespaces.
	in := func(labels string) string { return rule(`"*"`, `,"namespaceSelector":{"matchLabels":{`+labels+`}}`) }
	f(in(`"env":"prod"`), create(bare), true)
	f(in(`"env":"dev"`), create(bare), false)
	clusterScoped := []byte(strings.Replace(string(admissiontest.Body(codec.Create, "v1/nodes", bare)), `"namespace":"namespace",`, "", 1))
	f(rule(`"*"`, ""), clusterScoped, true)
	f(in(`"env":"prod"`), clusterScoped, false)
	f(in(`"a":"b"`), admissiontest.Body(codec.Create, "v1/namespaces", labelled), true)
	// Subresources are resources of their own.
	ephemeral := []byte(strings.Replace(string(admissiontest.UpdateBody("v1/pods", bare, bare)), `"uid"`,
		`"subResource":"ephemeralcontainers","uid"`, 1))
	f(rule(`"pods"`, ""), ephemeral, false)
	f(rule(`"pods/ephemeralcontainers"`, ""), ephemeral, true)
	f(rule(`"pods/ephemeralcontainers"`, ""), create(bare), false)
	// All matchConditions must be true.
	conditions := func(a, b string) string {
		return fmt.Sprintf(`{"spec":{"matchConditions":[{"name":"a","expression":%q},{"name":"b","expression":%q}]}}`, a, b)
	}
	f(conditions("object.metadata.name == 'n'", "request.operation == 'CREATE'"), create(bare), true)
	f(conditions("true", "object.metadata.name == 'm'"), create(bare), false)
	f(conditions("true", "object.metadata.nope == ''"), create(bare), false)
}

// TestExceptionEnd tests an exception at its end, and names that begin with that of its policy.
func TestExceptionEnd(t *testing.T) {
	x := newExcepting(t, exceptionOf(t, `{}`), exceptionOf(t, `{"metadata":{"name":"a"},"spec":{"expiresAt":"2027-01-30T23:00:00-01:00"}}`),
		exceptionOf(t, `{"metadata":{"name":"other"},"spec":{"policies":["never"],"expiresAt":null,"neverExpires":true}}`))
	body := admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"n"}}`)
	f := func(policy string, now time.Time, want string, lifted, expired uint64) {
		t.Helper()
		if got := x.lifted(t.Context(), reviewOf(t, body), policy, now); got != want {
			t.Errorf("%s at %s: got %q, want %q", policy, now, got, want)
		}
		got := [...]uint64{x.counted("a", policy, exceptionLifted), x.counted("a", policy, exceptionExpired)}
		if got != [...]uint64{lifted, expired} {
			t.Errorf("%s at %s: got %v counted, want %d lifted, %d expired", policy, now, got, lifted, expired)
		}
	}
	end := time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)
	f("q", end.Add(-time.Nanosecond), "a", 1, 0) // the first by name
	f("q", end, "", 1, 1)
	f("q", end.Add(time.Hour), "", 1, 2)
	f("never", end.AddDate(1000, 0, 0), "other", 0, 0)
	for _, policy := range []string{"p", "p.example", "p.example.com.other", "", "never.", "P.example.com"} {
		f(policy, beforeTheEnd, "", 0, 0)
	}
	f("p.example.com", beforeTheEnd, "a", 1, 0)
	if x.log.Len() > 0 {
		t.Errorf("got the log %s", &x.log)
	}
}

// TestExceptionFails has exceptions that cannot be evaluated: they lift nothing, others do, and the log has each once.
func TestExceptionFails(t *testing.T) {
	conditions := `"matchConditions":[{"name":"c","expression":"object.metadata.nope == ''"}]`
	x := newExcepting(t, exceptionOf(t, `{"spec":{`+conditions+`}}`),
		exceptionOf(t, `{"metadata":{"name":"version"},"spec":{"matchConstraints":{"resourceRules":[{"operations":["*"],"apiGroups":[""],`+
			`"apiVersions":["v2"],"resources":["pods"]}]}}}`),
		exceptionOf(t, `{"metadata":{"name":"z"},"spec":{"policies":["q"]}}`))
	body := askedAs("v2", admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"n"}}`))
	for range 3 {
		if got := x.lifted(t.Context(), reviewOf(t, body), "p.example.com", beforeTheEnd); got != "" {
			t.Errorf("got %q", got)
		}
		if got := x.lifted(t.Context(), reviewOf(t, body), "q", beforeTheEnd); got != "z" {
			t.Errorf("got %q, want z", got)
		}
	}
	for _, name := range []string{"e", "version"} {
		if got := x.counted(name, "p.example.com", exceptionFailed); got != 3 {
			t.Errorf("%s: got %d counted, want 3", name, got)
		}
	}
	for _, want := range []string{"name=version", `name=e plugin=ValidatingAdmissionPolicy policy=p.example.com error="expression ` +
		`'object.metadata.nope == ''' resulted in error: no such key: nope"`} {
		if got := strings.Count(x.log.String(), want); got != 1 {
			t.Errorf("got %d times %s in the log, want 1:\n%s", got, want, &x.log)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := x.lifted(ended, reviewOf(t, body), "q", beforeTheEnd); got != "" {
		t.Errorf("got %q after the time of the call", got)
	}
}

// TestExceptionOfSecret has an error with the data of a Secret, which is not logged.
func TestExceptionOfSecret(t *testing.T) {
	x := newExcepting(t, exceptionOf(t, `{"spec":{"matchConstraints":{"resourceRules":[{"operations":["*"],"apiGroups":[""],`+
		`"apiVersions":["v1"],"resources":["secrets"]}]},"matchConditions":[{"name":"c","expression":"int(object.data.a) > 0"}]}}`))
	secret := admissiontest.Body(codec.Create, "v1/secrets",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"n"},"data":{"a":"hunter2"}}`)
	if got := x.lifted(t.Context(), reviewOf(t, secret), "q", beforeTheEnd); got != "" {
		t.Errorf("got %q", got)
	}
	if log := x.log.String(); strings.Contains(log, "hunter2") || !strings.Contains(log, "hidden: it may be secret") {
		t.Errorf("got the log %s", log)
	}
}

// TestExceptionOfOwnKinds has an exception for everything: it does not lift what is said against exceptions.
func TestExceptionOfOwnKinds(t *testing.T) {
	x := newExcepting(t, exceptionOf(t, `{"spec":{"matchConstraints":{"resourceRules":[{"operations":["*"],"apiGroups":["*"],`+
		`"apiVersions":["*"],"resources":["*"]}]}}}`))
	for resource, want := range map[string]string{"v1/pods": "e", "policies.fastadmit.io/v1/policyexceptions": ""} {
		review := reviewOf(t, admissiontest.Body(codec.Create, resource, `{"metadata":{"name":"n"}}`))
		if got := x.Lift(t.Context(), review, "PodSecurity"); got != want {
			t.Errorf("%s: got %q, want %q", resource, got, want)
		}
	}
}

// TestExceptionCost gives a condition that costs more than match conditions may.
func TestExceptionCost(t *testing.T) {
	const many = "[0,1,2,3,4,5,6,7,8,9]"
	x := newExcepting(t, exceptionOf(t, fmt.Sprintf(`{"spec":{"matchConditions":[{"name":"c","expression":%q}]}}`,
		strings.ReplaceAll("N.all(a, N.all(b, N.all(c, N.all(d, N.all(e, N.all(f, a+b+c+d+e+f >= 0))))))", "N", many))))
	body := admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"n"}}`)
	if got := x.lifted(t.Context(), reviewOf(t, body), "q", beforeTheEnd); got != "" || x.counted("e", "q", exceptionFailed) != 1 {
		t.Errorf("got %q, and %s", got, &x.log)
	}
}

// TestUnknownNames has exceptions that name what does not exist.
func TestUnknownNames(t *testing.T) {
	x := newExcepting(t, exceptionOf(t, `{}`))
	for range 2 {
		x.usePolicies([]string{"q"})
		x.Use([]string{"ValidatingAdmissionPolicy"})
	}
	want := []string{
		`PolicyException "e" names the plugin "PodSecurity", which is not evaluated, so it lifts nothing of it`,
		`PolicyException "e" names the policy "p.example.com", which is not evaluated, so it lifts nothing of it`,
	}
	if got := x.Unknown(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, once := range []string{"name=e plugin=PodSecurity", "name=e policy=p.example.com"} {
		if strings.Count(x.log.String(), once) != 1 {
			t.Errorf("got the log %s, want once %s", &x.log, once)
		}
	}
	x.usePolicies([]string{"p.example.com", "q"})
	x.Use([]string{"PodSecurity"})
	if got := x.Unknown(); got != nil {
		t.Errorf("got %q", got)
	}
}

// BenchmarkExceptions asks ten thousand exceptions of a policy about a Pod: none is for it.
func BenchmarkExceptions(b *testing.B) {
	for name, more := range map[string]string{
		"names":      `"matchConstraints":{"resourceRules":[{` + ruleFields + `,"resourceNames":["x%d"]}]}`,
		"labels":     `"matchConstraints":{"objectSelector":{"matchLabels":{"app":"x%d"}}}`,
		"conditions": `"matchConditions":[{"name":"c","expression":"object.metadata.name == 'x%d'"}]`,
	} {
		b.Run(name, func(b *testing.B) {
			var all []*exception
			for i := range 10_000 {
				all = append(all, exceptionOf(b, fmt.Sprintf(`{"metadata":{"name":"e%d"},"spec":{`+more+`}}`, i, i)))
			}
			x := newExcepting(b, all...)
			review := codec.Acquire()
			defer review.Release()
			body := admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"n","labels":{"app":"a"}}}`)
			if err := review.Decode(body); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if got := x.lifted(b.Context(), review, "q", beforeTheEnd); got != "" {
					b.Fatal(got)
				}
			}
			x.use([]*exception{exceptionOf(b, `{"metadata":{"name":"z"}}`)})
			if got := x.lifted(b.Context(), review, "q", beforeTheEnd); got != "z" {
				b.Fatalf("got %q, want z, which is for the Pod", got)
			}
		})
	}
}
