package eventratelimit

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// clock is a clock that the test sets.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func newClock() *clock { return &clock{time.Unix(1e9, 0)} }

// chainOf returns a chain of the plugin with this clock.
func chainOf(t testing.TB, c *clock, config string) *admission.Chain {
	t.Helper()
	plugin := Plugin()
	plugin.New = func(setup admission.Setup) (admission.Handler, error) { return newHandler(setup.Config, c.now) }
	return admissiontest.MustChain(t, plugin, config)
}

// configOf returns the configuration with these limits, in YAML's flow style.
func configOf(limits ...string) string {
	return "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits: [" +
		strings.Join(limits, ", ") + "]\n"
}

// tree is a JSON object.
type tree = map[string]any

// request returns an AdmissionRequest that creates an Event, with some fields replaced.
func request(changes tree) tree {
	r := tree{
		"uid":         "1",
		"kind":        tree{"group": "", "version": "v1", "kind": "Event"},
		"requestKind": tree{"group": "", "version": "v1", "kind": "Event"},
		"resource":    tree{"group": "", "version": "v1", "resource": "events"},
		"operation":   "CREATE",
		"object":      tree{"apiVersion": "v1", "kind": "Event"},
	}
	for name, value := range changes {
		r[name] = value
	}
	return r
}

func bodyOf(t testing.TB, request tree) []byte {
	t.Helper()
	body, err := json.Marshal(tree{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// answer sends a request and returns the message of the denial, "" if it is allowed. A
// denial must have upstream's code and reason, and no other fields.
func answer(t *testing.T, chain *admission.Chain, request tree) string {
	t.Helper()
	response := admissiontest.Answer(t, chain, admission.Validate, bodyOf(t, request))
	var got struct {
		Allowed bool
		Status  struct{ Message string }
	}
	if err := json.Unmarshal(response, &got); err != nil {
		t.Fatal(err)
	}
	if got.Allowed {
		return ""
	}
	message, err := json.Marshal(got.Status.Message)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"allowed":false,"status":{"code":429,"message":%s,"metadata":{},`+
		`"reason":"TooManyRequests","status":"Failure"}}`, message)
	if string(response) != want {
		t.Errorf("got response %s, want %s", response, want)
	}
	return got.Status.Message
}

// play runs a script. A step is the label of a request, with "!" in front if it must be
// denied; "+1s" moves the clock first.
func play(t *testing.T, config string, requestOf func(label string) tree, script string) {
	t.Helper()
	c := newClock()
	chain := chainOf(t, c, config)
	for i, step := range strings.Fields(script) {
		if after, ok := strings.CutPrefix(step, "+"); ok {
			d, err := time.ParseDuration(after)
			if err != nil {
				t.Fatal(err)
			}
			c.Time = c.Add(d)
			continue
		}
		label, denied := strings.CutPrefix(step, "!")
		if message := answer(t, chain, request(requestOf(label))); (message != "") != denied {
			t.Errorf("script %q: step %d: got denial %q, want denied %t", script, i, message, denied)
		}
	}
}

func namespaced(label string) tree { return tree{"namespace": label} }

func byUser(label string) tree { return tree{"userInfo": tree{"username": label}} }

func from(label string) tree {
	return tree{"object": tree{"source": tree{"component": label}}}
}

// ofSort returns requests by a label: "e" for an Event, "d" for a dry run, and others that
// the plugin ignores.
func ofSort(label string) tree {
	switch label {
	case "e":
		return nil
	case "e-update":
		return tree{"operation": "UPDATE", "oldObject": tree{"apiVersion": "v1", "kind": "Event"}}
	case "e-unconverted":
		return tree{"requestKind": nil}
	case "d":
		return tree{"dryRun": true}
	case "kind":
		kind := tree{"group": "", "version": "v1", "kind": "NonEvent"}
		return tree{"kind": kind, "requestKind": kind}
	case "kind-unconverted":
		return tree{"kind": tree{"group": "", "version": "v1", "kind": "NonEvent"}, "requestKind": nil}
	case "resource":
		return tree{"resource": tree{"group": "", "version": "v1", "resource": "pods"}}
	case "delete":
		return tree{"operation": "DELETE", "object": nil, "oldObject": tree{"kind": "Event"}}
	case "converted":
		return tree{"requestKind": tree{"group": "events.k8s.io", "version": "v1", "kind": "Event"}}
	}
	kind := tree{"group": "events.k8s.io", "version": "v1", "kind": "Event"}
	return tree{
		"kind": kind, "requestKind": kind,
		"resource": tree{"group": "events.k8s.io", "version": "v1", "resource": "events"},
	}
}

// TestLimits has upstream's cases as scripts (admission_test.go TestEventRateLimiting).
func TestLimits(t *testing.T) {
	f := func(limits string, requestOf func(string) tree, script string) {
		t.Helper()
		play(t, configOf(limits), requestOf, script)
	}
	const server = "{type: Server, qps: 1, burst: 3}"
	f(server, ofSort, "e")
	f(server, ofSort, "kind")
	f(server, ofSort, "e e e !e")
	f(server, ofSort, "e e d d d d e !e d")
	f(server, ofSort, "e e e kind")
	f(server, ofSort, "e e kind e")
	f(server, ofSort, "e e e !e +1s e")

	const busy = "{type: Server, qps: 1, burst: 100}, "
	keyed := func(limitType string, requestOf func(string) tree) {
		t.Helper()
		limits := busy + "{type: " + limitType + ", qps: 1, burst: 3, cacheSize: 10}"
		f(limits, requestOf, "A A A !A")
		f(limits, requestOf, "A A A B")
		f(limits, requestOf, "A A B A")
		f(limits, requestOf, "A A A !A +1s A")
		f(limits, requestOf, "A A A B !A")
		two := busy + "{type: " + limitType + ", qps: 1, burst: 3, cacheSize: 2}"
		f(two, requestOf, "A A B B B A !B !A C !A B")
	}
	keyed("Namespace", namespaced)
	keyed("User", byUser)
	keyed("SourceAndObject", from)

	for _, at := range [][2]string{
		{"source", "component"},
		{"source", "host"},
		{"involvedObject", "kind"},
		{"involvedObject", "namespace"},
		{"involvedObject", "name"},
		{"involvedObject", "uid"},
		{"involvedObject", "apiVersion"},
	} {
		f(busy+"{type: SourceAndObject, qps: 1, burst: 1, cacheSize: 10}", func(label string) tree {
			return tree{"object": tree{at[0]: tree{at[1]: label}}}
		}, "A !A B")
	}
}

// TestOtherLimits has cases that upstream does not test.
func TestOtherLimits(t *testing.T) {
	f := func(limits string, requestOf func(string) tree, script string) {
		t.Helper()
		play(t, configOf(limits), requestOf, script)
	}
	const server = "{type: Server, qps: 1, burst: 1}"
	f(server, ofSort, "e-update !e")
	f(server, ofSort, "e-unconverted !e !e-unconverted")
	f(server, ofSort, "delete events.k8s.io converted kind-unconverted resource e !e")
	f(server, ofSort, "e !e delete events.k8s.io converted kind-unconverted resource")
	f("{type: Server, qps: 1, burst: 1, cacheSize: -1}", namespaced, "A !B")

	// A denial takes no token: half a second later the bucket has half a token.
	f("{type: Server, qps: 2, burst: 1}", ofSort, "e !e +499ms !e +1ms e !e")
	// A bucket never has more tokens than the burst.
	f("{type: Server, qps: 1, burst: 2}", ofSort, "e e +1h e e !e")
	// One bucket fills while the others are in use.
	f("{type: User, qps: 1, burst: 1}", byUser, "A +1s B !B A !A +1s A B")
	// A denied request also counts as a use of its key.
	f("{type: User, qps: 1, burst: 1, cacheSize: 2}", byUser, "A B !A C !A B")
	f("{type: User, qps: 1, burst: 1, cacheSize: 1}", byUser, "A B A !A B")

	// Other fields of the Event are not part of the key. Missing fields, and values that are
	// not strings, are empty.
	const about = "{type: SourceAndObject, qps: 1, burst: 1}"
	objects := map[string]any{
		"empty":   tree{},
		"nothing": nil,
		"null":    tree{"source": nil, "involvedObject": nil},
		"numbers": tree{"source": tree{"component": 1, "host": nil}, "involvedObject": tree{"name": []int{1}}},
		"strings": tree{"source": "x", "involvedObject": "y"},
		"others": tree{"reason": "r", "message": "m", "reportingComponent": "c",
			"involvedObject": tree{"fieldPath": "spec", "resourceVersion": "1"}},
	}
	f(about, func(label string) tree { return tree{"object": objects[label]} },
		"empty !nothing !null !numbers !strings !others")
	f("{type: User, qps: 1, burst: 1}", func(label string) tree {
		return map[string]tree{"none": nil, "null": {"userInfo": nil}, "empty": {"userInfo": tree{"username": ""}}}[label]
	}, "none !null !empty")
}

// TestFieldsStandApart has different keys whose concatenated fields are equal.
func TestFieldsStandApart(t *testing.T) {
	about := func(label string) tree {
		component, host, _ := strings.Cut(label, ",")
		return tree{"object": tree{"source": tree{"component": component, "host": host}}}
	}
	play(t, configOf("{type: SourceAndObject, qps: 1, burst: 1}"), about, "ab,c a,bc abc, ,abc !ab,c !a,bc !abc, !,abc")
}

// TestEveryLimitIsCharged checks that every limit takes a token, even if another one denies.
func TestEveryLimitIsCharged(t *testing.T) {
	for _, limits := range [][]string{
		{"{type: Namespace, qps: 1, burst: 1}", "{type: User, qps: 1, burst: 2}"},
		{"{type: User, qps: 1, burst: 2}", "{type: Namespace, qps: 1, burst: 1}"},
	} {
		play(t, configOf(limits...), func(label string) tree {
			namespace, user, _ := strings.Cut(label, "/")
			return tree{"namespace": namespace, "userInfo": tree{"username": user}}
		}, "A/u !A/u !B/u !B/v C/v")
	}
}

func TestMessages(t *testing.T) {
	chatty := request(tree{
		"namespace": "shop",
		"userInfo":  tree{"username": "system:node:n1"},
		"object": tree{
			"source": tree{"component": "kubelet", "host": "n1"},
			"involvedObject": tree{
				"apiVersion": "v1", "uid": "u-1", "name": "db-0", "namespace": "shop", "kind": "Pod",
				"fieldPath": "spec.containers{db}",
			},
		},
	})
	f := func(want string, limits ...string) {
		t.Helper()
		chain := chainOf(t, newClock(), configOf(limits...))
		if got := answer(t, chain, chatty); got != "" {
			t.Errorf("the first Event: got denial %q, want none", got)
		}
		if got := answer(t, chain, chatty); got != want {
			t.Errorf("got message %q, want %q", got, want)
		}
	}
	const (
		server    = "{type: Server, qps: 1, burst: 1}"
		namespace = "{type: Namespace, qps: 1, burst: 1}"
		user      = "{type: User, qps: 1, burst: 1}"
		source    = "{type: SourceAndObject, qps: 1, burst: 1}"
	)
	f("Too many requests: limit reached on type Server for key ", server)
	f("Too many requests: limit reached on type Namespace for key shop", namespace)
	f("Too many requests: limit reached on type User for key system:node:n1", user)
	f("Too many requests: limit reached on type SourceAndObject for key kubeletn1Podshopdb-0u-1v1", source)
	f("Too many requests: [limit reached on type User for key system:node:n1, limit reached on type Server for key ]",
		user, "{type: Namespace, qps: 1, burst: 2}", server)
	// An aggregate lists equal messages once.
	f("Too many requests: limit reached on type Namespace for key shop", namespace, namespace)
	f("Too many requests: [limit reached on type Namespace for key shop, limit reached on type Server for key ]",
		namespace, server, namespace)
}

// TestRecordings has reviews of a real kube-apiserver, in both versions.
func TestRecordings(t *testing.T) {
	chain := chainOf(t, newClock(), configOf("{type: SourceAndObject, qps: 1, burst: 1}"))
	f := func(name, want string) {
		t.Helper()
		response := admissiontest.Answer(t, chain, admission.Validate, corpus.MustRead(name))
		if got := string(response); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want it to contain %s", name, got, want)
		}
	}
	const denied = "for key persistentvolume-controllerPersistentVolumeClaimshopdata-db-0b765908d-2a06-4413-96cf-20b5e0a083ebv1"
	f("events-create-v1-1.json", `{"allowed":true}`)
	f("events-update-v1-2.json", `{"allowed":true}`)
	f("events-update-v1-2.json", denied)
	f("events-update-v1beta1-2.json", denied)
	f("pods-create-v1-1.json", `{"allowed":true}`)
}

// TestREADME loads the configuration in README.md.
func TestREADME(t *testing.T) {
	content, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(content), "```yaml\n")
	config, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("README.md: got no YAML block, want the configuration")
	}
	if _, err := loadConfiguration([]byte(config)); err != nil {
		t.Error(err)
	}
}
