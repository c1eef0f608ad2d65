package initialresources

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

const pods = "v1/pods"

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// A prometheus is a server that answers queries with a function.
type prometheus struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

// serve starts one. Answer returns the answer to a query: a usage, a code, or a whole body.
func serve(t testing.TB, answer func(query string) any) *prometheus {
	p := new(prometheus)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		p.mu.Lock()
		p.asked = append(p.asked, query)
		p.mu.Unlock()
		if r.URL.Path != "/api/v1/query" || r.FormValue("timeout") != "10s" {
			http.Error(w, "another request: "+r.URL.String(), http.StatusBadRequest)
			return
		}
		switch a := answer(query).(type) {
		case usage:
			fmt.Fprint(w, vector(map[string]string{fmt.Sprint(stepOf(float64(a.value))): fmt.Sprint(a.samples)}))
		case int:
			http.Error(w, `{"status":"error","errorType":"execution","error":"too many samples"}`, a)
		case string:
			fmt.Fprint(w, a)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// queries returns the queries since the last call.
func (p *prometheus) queries() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.asked = nil }()
	return p.asked
}

// stepOf returns the step of a value, as the query computes it.
func stepOf(value float64) float64 { return max(math.Ceil(stepsPerOctave*math.Log2(value)), -1) }

// vector returns an answer with samples by step.
func vector(steps map[string]string) string {
	var results []string
	for step, samples := range steps {
		results = append(results, fmt.Sprintf(`{"metric":{"v":%q},"value":[1764000000.123,%q]}`, step, samples))
	}
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(results, ",") + `]}}`
}

func (p *prometheus) config(more string) string {
	return `{"apiVersion":"fastadmit.io/v1alpha1","kind":"InitialResourcesConfiguration","source":{"url":"` + p.URL + `"}` + more + `}`
}

// requests returns the field resources with these requests; "" leaves one out.
func requests(cpu, memory string) string {
	var all []string
	if cpu != "" {
		all = append(all, `"cpu":"`+cpu+`"`)
	}
	if memory != "" {
		all = append(all, `"memory":"`+memory+`"`)
	}
	if all == nil {
		return ""
	}
	return `,"resources":{"requests":{` + strings.Join(all, ",") + `}}`
}

func container(name, image, resources string) string {
	return fmt.Sprintf(`{"name":%q,"image":%q%s}`, name, image, resources)
}

// body returns the creation of a pod with one container and one init container.
func body(image, resources string) []byte {
	return admissiontest.Body(codec.Create, pods,
		`{"spec":{"initContainers":[`+container("i0", image, resources)+`],"containers":[`+container("c0", image, resources)+`]}}`)
}

// check compares the patch of a pod's creation with the wanted requests and annotation.
func check(t *testing.T, chain *admission.Chain, image, resources, wantResources, wantAnnotation string) {
	t.Helper()
	var answer struct {
		Allowed bool
		Patch   json.RawMessage
	}
	if err := json.Unmarshal(admissiontest.Answer(t, chain, admission.Mutate, body(image, resources)), &answer); err != nil ||
		!answer.Allowed {
		t.Fatalf("got %+v, %v", answer, err)
	}
	got := string(answer.Patch)
	if wantAnnotation == "" {
		if got != "" {
			t.Errorf("%s: got patch %s, want none", image, got)
		}
		return
	}
	if n := strings.Count(got, strings.TrimPrefix(wantResources, ",")); n != 2 {
		t.Errorf("%s: got patch %s, want %s twice", image, got, wantResources)
	}
	if !strings.Contains(got, `"Initial Resources plugin set: `+wantAnnotation+`"`) {
		t.Errorf("%s: got patch %s, want annotation %s", image, got, wantAnnotation)
	}
}

// These tell apart the queries of upstream's GetUsagePercentile.
func exact(query string) bool         { return !strings.Contains(query, "[:@]") }
func ofNamespace(query string) bool   { return strings.Contains(query, `,namespace="namespace"}`) }
func allNamespaces(query string) bool { return !strings.Contains(query, "namespace=") }
func inDays(query string, days int) bool {
	return strings.Contains(query, fmt.Sprintf("[%dd:300s]", days))
}

// TestUpstream has upstream's own cases (initialresources/admission_test.go of v1.10).
func TestUpstream(t *testing.T) {
	f := func(answer func(query string) usage) {
		t.Helper()
		chain := admissiontest.MustChain(t, Plugin(), serve(t, func(query string) any { return answer(query) }).config(""))
		check(t, chain, "image:v0", "", `{"requests":{"cpu":"100m","memory":"100"}}`,
			"cpu, memory request for init container i0; cpu, memory request for container c0")
		check(t, chain, "image:v1", requests("", "300"), `requests/cpu","value":"100m"`,
			"cpu request for init container i0; cpu request for container c0")
		check(t, chain, "image:v2", requests("300m", ""), `requests/memory","value":"100"`,
			"memory request for init container i0; memory request for container c0")
		check(t, chain, "image:v3", requests("300m", "300"), "", "")
	}
	f(func(q string) usage { // TestEstimationBasedOnTheSameImageSameNamespace7d
		if exact(q) && inDays(q, 7) && ofNamespace(q) {
			return usage{100, 120}
		}
		return usage{200, 120}
	})
	f(func(q string) usage { // TestEstimationBasedOnTheSameImageSameNamespace30d
		switch {
		case exact(q) && inDays(q, 7) && ofNamespace(q):
			return usage{200, 20}
		case exact(q) && inDays(q, 30) && ofNamespace(q):
			return usage{100, 120}
		}
		return usage{200, 120}
	})
	f(func(q string) usage { // TestEstimationBasedOnTheSameImageAllNamespaces7d
		switch {
		case exact(q) && ofNamespace(q):
			return usage{200, 20}
		case exact(q) && inDays(q, 7) && allNamespaces(q):
			return usage{100, 120}
		}
		return usage{200, 120}
	})
	f(func(q string) usage { // TestEstimationBasedOnTheSameImageAllNamespaces30d
		switch {
		case exact(q) && ofNamespace(q), exact(q) && inDays(q, 7) && allNamespaces(q):
			return usage{200, 20}
		case exact(q) && inDays(q, 30) && allNamespaces(q):
			return usage{100, 120}
		}
		return usage{200, 120}
	})
	f(func(q string) usage { // TestEstimationBasedOnOtherImages
		if strings.Contains(q, `{image=~"image([:@].*)?|docker\\.io/library/image([:@].*)?"}`) && inDays(q, 30) {
			return usage{100, 5}
		}
		return usage{200, 20}
	})
	f(func(q string) usage { // a single sample for all questions
		if !exact(q) {
			return usage{100, 1}
		}
		return usage{}
	})
	none := func(more string, answer func(query string) any) {
		t.Helper()
		check(t, admissiontest.MustChain(t, Plugin(), serve(t, answer).config(more)), "image:v0", "", "", "")
	}
	none("", func(string) any { return 422 })           // TestEstimateReturnsErrorFromSource
	none("", func(string) any { return usage{200, 0} }) // TestNoData
	none(`,"namespaceOnly":true`, func(q string) any {  // TestNamespaceAware
		if ofNamespace(q) {
			return usage{200, 0}
		}
		return usage{200, 120}
	})
}

// TestManyContainers is a test of upstream.
func TestManyContainers(t *testing.T) {
	p := serve(t, func(q string) any {
		if exact(q) {
			return usage{100, 120}
		}
		return usage{200, 30}
	})
	containers := func(first, second, third string) string {
		return `{"spec":{"initContainers":[` + container("i0", "image:v0", first) + `],"containers":[` +
			container("c0", "image:v0", first) + "," +
			container("c1", "image:v1", second) + "," + container("c2", "image:v2", third) + "," +
			container("c3", "image:v3", requests("300m", "300")) + `]}`
	}
	const said = `,"metadata":{"annotations":{"kubernetes.io/initial-resources":"Initial Resources plugin set: ` +
		`cpu, memory request for init container i0; ` +
		`cpu, memory request for container c0; cpu request for container c1; memory request for container c2"}}}`
	chain := admissiontest.MustChain(t, Plugin(), p.config(""))
	admissiontest.CheckAdmit(t, chain, pods, containers("", requests("", "300"), requests("300m", ""))+"}",
		containers(requests("100m", "100"), requests("100m", "300"), requests("300m", "100"))+said)
	if got := p.queries(); len(got) != 4 {
		t.Errorf("got queries %q, want one for each resource and image", got)
	}
}

// TestContainers has containers that already have requests or limits, and their names in the
// annotation.
func TestContainers(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), serve(t, func(q string) any {
		if strings.Contains(q, "cpu") {
			return usage{1024, 30}
		}
		return usage{1 << 30, 30}
	}).config(""))
	f := func(container, want, said string) {
		t.Helper()
		if said != "" {
			said = `"metadata":{"annotations":{"kubernetes.io/initial-resources":"Initial Resources plugin set: ` + said + `"}},`
		}
		const pod = `{%s"spec":{"containers":[{"image":"a",%s}]}}`
		admissiontest.CheckAdmit(t, chain, pods, fmt.Sprintf(pod, "", container), fmt.Sprintf(pod, said, want))
	}
	const both, bothSaid = `"resources":{"requests":{"cpu":"1024m","memory":"1073741824"}}`, "cpu, memory request for container "
	f(`"name":"c"`, `"name":"c",`+both, bothSaid+"c")
	f(`"name":null`, `"name":null,`+both, bothSaid)
	f(`"name":"\"\\\n"`, `"name":"\"\\\n",`+both, bothSaid+`\"\\\n`)
	f(`"resources":null`, both, bothSaid)
	f(`"resources":{"requests":null,"limits":null}`, strings.TrimSuffix(both, "}")+`,"limits":null}`, bothSaid)
	f(`"resources":{"limits":{"cpu":"1"}}`, `"resources":{"limits":{"cpu":"1"},"requests":{"memory":"1073741824"}}`,
		"memory request for container ")
	f(`"resources":{"limits":{"memory":"1"},"requests":{"x":"1"}}`,
		`"resources":{"limits":{"memory":"1"},"requests":{"x":"1","cpu":"1024m"}}`, "cpu request for container ")
	f(`"resources":{"limits":{"cpu":"1","memory":"1"}}},{"image":"a"`,
		`"resources":{"limits":{"cpu":"1","memory":"1"}}},{"image":"a",`+both, bothSaid) // the same image
	f(`"resources":{"limits":{"memory":"1","cpu":"1"}}`, `"resources":{"limits":{"memory":"1","cpu":"1"}}`, "")
	f(`"resources":{"limits":{"memory":"1"},"requests":{"cpu":"0"}}`, `"resources":{"limits":{"memory":"1"},"requests":{"cpu":"0"}}`, "")
}

func TestOutcomes(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), serve(t, func(string) any { return usage{100, 30} }).config(""))
	f := func(operation codec.Operation, resource, object string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, admissiontest.Body(operation, resource, object))
	}
	const pod = `{"spec":{"containers":[{"name":"c","image":"a"}]}}`
	f(codec.Create, pods, pod, admission.OutcomePatched)
	f(codec.Update, pods, pod, admission.OutcomeAllowed)
	f(codec.Create, "v1/podtemplates", pod, admission.OutcomeAllowed)
	f(codec.Create, pods, `{"spec":{"ephemeralContainers":[{"name":"c","image":"a"}]}}`, admission.OutcomeAllowed)
	for _, object := range []string{`null`, `{}`, `{"spec":null}`, `{"spec":{"containers":null}}`, `{"spec":{"containers":[]}}`,
		`{"spec":{"containers":[null]}}`} {
		f(codec.Create, pods, object, admission.OutcomeAllowed)
	}
}

func TestConfigurationErrors(t *testing.T) {
	f := func(config, want string) {
		t.Helper()
		_, err := admissiontest.NewChain(Plugin(), config)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s\ngot error %v\nwant one with %q", config, err, want)
		}
	}
	if _, err := admissiontest.NewChain(Plugin(), ""); (err != nil) != Plugin().RequiresConfig {
		t.Errorf("without configuration: got error %v, want one if the plugin requires a configuration", err)
	}
	const head = "apiVersion: fastadmit.io/v1alpha1\nkind: InitialResourcesConfiguration\n"
	const source = head + "source: {url: 'https://a'}\n"
	f("", `apiVersion: Unsupported value: ""`)
	f(head, `source.url: Invalid value: ""`)
	f(source, "")
	f(source+"percentile: 0", "percentile: Invalid value: 0: must be from 1 to 100")
	f(source+"percentile: 1", "")
	f(source+"percentile: 100", "")
	f(source+"percentile: 101", "percentile: Invalid value: 101")
	f(source+"percentile: 99.5", "cannot decode configuration")
	f(source+"resolution: 59s", `resolution: Invalid value: "59s": must be whole seconds from 1m0s to 1h0m0s`)
	f(source+"resolution: 60s", "")
	f(source+"resolution: 1h", "")
	f(source+"resolution: 3601s", "resolution: Invalid value")
	f(source+"resolution: 60500ms", "resolution: Invalid value")
	f(source+"namespaceonly: true", `unknown field "namespaceonly"`)
	f(head+"source: {url: 'https://a', caFile: /nowhere/ca.crt}", "cannot make a client for https://a")
}

// TestMetrics checks the plugin's own series.
func TestMetrics(t *testing.T) {
	p := serve(t, func(q string) any {
		if strings.Contains(q, "cpu") {
			return 503
		}
		return usage{100, 30}
	})
	set, plugin := metrics.NewSet(), Plugin()
	chain, err := admission.NewChain([]admission.Plugin{plugin},
		map[string]admission.Enabled{plugin.Name: {Config: []byte(p.config("")), Metrics: set}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		check(t, chain, "a", "", `{"requests":{"memory":"100"}}`, "memory request for init container i0; memory request for container c0")
	}
	var page bytes.Buffer
	set.WritePrometheus(&page)
	for _, want := range []string{
		`fastadmit_initial_resources_queries_total{result="succeeded"} 1`, `fastadmit_initial_resources_queries_total{result="failed"} 1`,
		`fastadmit_initial_resources_query_duration_seconds_count 2`, `fastadmit_initial_resources_cache_hits_total 2`,
		`fastadmit_initial_resources_failed_estimates_total 2`,
	} {
		if !strings.Contains(page.String(), want+"\n") {
			t.Errorf("got no %s in\n%s", want, page.String())
		}
	}
	for _, bound := range []string{"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"} {
		want := `fastadmit_initial_resources_query_duration_seconds_bucket{le="` + bound + `"} `
		if !strings.Contains(page.String(), want) {
			t.Errorf("got no %s in\n%s", want, page.String())
		}
	}
}
