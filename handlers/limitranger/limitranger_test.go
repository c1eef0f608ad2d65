package limitranger

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// list parses text such as "cpu=1 memory=2Gi".
func list(text string) corev1.ResourceList {
	list := make(corev1.ResourceList)
	for amount := range strings.FieldsSeq(text) {
		name, quantity, _ := strings.Cut(amount, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return list
}

// limits returns a LimitRange in the namespace of admissiontest.Body.
func limits(name string, items ...corev1.LimitRangeItem) runtime.Object {
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "namespace"},
		Spec: corev1.LimitRangeSpec{Limits: items}}
}

func defaults(requests, limits string) corev1.LimitRangeItem {
	return corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: list(requests), Default: list(limits)}
}

// recorded returns a LimitRange in the namespace of the recorded pods.
func recorded() runtime.Object {
	object := limits("defaults", defaults("cpu=100m memory=128Mi", "cpu=500m memory=256Mi example.com/gpu=0"))
	object.(*corev1.LimitRange).Namespace = "shop"
	return object
}

func TestMutates(t *testing.T) {
	admissiontest.MutatesChain(t, admissiontest.MustChain(t, Plugin(), "", recorded()), nil,
		"/metadata/annotations", "/metadata/annotations/kubernetes.io~1limit-ranger",
		"/spec/*ontainers/*/resources/*", "/spec/*ontainers/*/resources/*/*")
}

func TestDefaults(t *testing.T) {
	f := func(pod, want string, items ...corev1.LimitRangeItem) {
		t.Helper()
		admissiontest.CheckAdmit(t, admissiontest.MustChain(t, Plugin(), "", limits("l", items...)), "v1/pods", pod, want)
	}
	const noted = `"metadata":{"annotations":{"kubernetes.io/limit-ranger":"LimitRanger plugin set: %s"}}`
	both := defaults("cpu=100m memory=128Mi", "cpu=1 memory=1Gi")
	const filled = `{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m","memory":"128Mi"}}`

	f(`{"spec":{"containers":[{"name":"c"}]}}`, fmt.Sprintf(`{`+noted+`,"spec":{"containers":[{"name":"c","resources":`+filled+`}]}}`,
		"cpu, memory request for container c; cpu, memory limit for container c"), both)
	f(`{"spec":{"containers":[{"name":"c","resources":null}]}}`,
		fmt.Sprintf(`{`+noted+`,"spec":{"containers":[{"name":"c","resources":`+filled+`}]}}`,
			"cpu, memory request for container c; cpu, memory limit for container c"), both)

	// Amounts that are set are not changed, even zero. Init containers come last, and
	// ephemeral containers have no resources.
	f(`{"spec":{"initContainers":[{"name":"i","resources":{"limits":{"cpu":"2","memory":"2Gi"}}}],`+
		`"containers":[{"name":"a","resources":{"limits":{"cpu":"0","memory":"5Gi"},"requests":{"cpu":"0",`+
		`"memory":"5Gi"}}},{"name":"b","resources":{"requests":{"cpu":"7"}}}],`+
		`"ephemeralContainers":[{"name":"e"}]}}`,
		fmt.Sprintf(`{`+noted+
			`,"spec":{"initContainers":[{"name":"i","resources":{"limits":{"cpu":"2","memory":"2Gi"},`+
			`"requests":{"cpu":"100m","memory":"128Mi"}}}],`+
			`"containers":[{"name":"a","resources":{"limits":{"cpu":"0","memory":"5Gi"},"requests":{"cpu":"0","memory":"5Gi"}}},`+
			`{"name":"b","resources":{"requests":{"cpu":"7","memory":"128Mi"},"limits":{"cpu":"1","memory":"1Gi"}}}],`+
			`"ephemeralContainers":[{"name":"e"}]}}`,
			"memory request for container b; cpu, memory limit for container b; cpu, memory request for init container i"), both)

	// If there are two defaults, the last one counts; it is named once.
	f(`{"spec":{"containers":[{"name":"c"}]}}`,
		fmt.Sprintf(`{`+noted+`,"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}`,
			"cpu request for container c"),
		defaults("cpu=1", ""), defaults("cpu=2", ""))

	// The annotation sorts the resources, whatever items they are from.
	f(`{"spec":{"containers":[{"name":"c"}]}}`,
		fmt.Sprintf(`{`+noted+`,"spec":{"containers":[{"name":"c","resources":{"requests":{"a/b":"3","cpu":"1","memory":"2"}}}]}}`,
			"a/b, cpu, memory request for container c"), defaults("cpu=1", ""), defaults("memory=2 a/b=3", ""))

	// Defaults of an item for whole pods are ignored.
	pods := corev1.LimitRangeItem{Type: corev1.LimitTypePod, Default: list("cpu=1"), DefaultRequest: list("cpu=1")}
	f(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"1"}}}]}}`,
		`{"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"1"}}}]}}`, defaults("memory=1", ""), pods)
	f(`{"spec":{"containers":[{"name":"c"}]}}`,
		fmt.Sprintf(`{`+noted+`,"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"1"}}}]}}`,
			"memory request for container c"),
		defaults("memory=1", ""), pods)

	// Without defaults nothing is changed, not even the annotation.
	const full = `{"metadata":{"annotations":{"kubernetes.io/limit-ranger":"old"}},"spec":{"containers":[{"name":"c","resources":` +
		filled + `}]}}`
	f(full, full, both)
	f(`{"spec":{"containers":[{"name":"c"}]}}`, `{"spec":{"containers":[{"name":"c"}]}}`,
		corev1.LimitRangeItem{Type: corev1.LimitTypePod, Default: list("cpu=1"), DefaultRequest: list("cpu=1")})
	f(`{"spec":null}`, `{"spec":null}`, both)
}

// TestSeveral has two LimitRanges: in order of their names, each sets the amounts that are
// still missing. The annotation is that of the last one that set any.
func TestSeveral(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", limits("b", defaults("cpu=2 memory=2", "")), limits("a", defaults("cpu=1", "")))
	admissiontest.CheckAdmit(t, chain, "v1/pods", `{"spec":{"containers":[{"name":"c"}]}}`,
		`{"metadata":{"annotations":{"kubernetes.io/limit-ranger":"LimitRanger plugin set: memory request for container c"}},`+
			`"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1","memory":"2"}}}]}}`)
}

// checkViolations checks the messages with which the plugin denies an object, "" if it is
// allowed.
func checkViolations(t *testing.T, resource, spec, want string, items ...corev1.LimitRangeItem) {
	t.Helper()
	checkViolationsOf(t, Plugin(), resource, spec, want, items...)
}

func checkViolationsOf(t *testing.T, plugin admission.Plugin, resource, spec, want string, items ...corev1.LimitRangeItem) {
	t.Helper()
	chain := admissiontest.MustChain(t, plugin, "", limits("l", items...))
	got := admissiontest.Answer(t, chain, admission.Validate, admissiontest.Body(codec.Create, resource, `{"spec":`+spec+`}`))
	message := fmt.Sprintf(`"message":"%s \"name\" is forbidden: %s"`, strings.TrimPrefix(resource, "v1/"), want)
	if want == "" && string(got) != `{"allowed":true}` || want != "" && !bytes.Contains(got, []byte(message)) {
		t.Errorf("%s\ngot  %s\nwant %s", spec, got, message)
	}
}

// pod returns the spec of a pod whose containers have these resources.
func pod(resources ...string) string {
	var containers []string
	for i, r := range resources {
		containers = append(containers, fmt.Sprintf(`{"name":"c%d","resources":%s}`, i, r))
	}
	return `{"containers":[` + strings.Join(containers, ",") + `]}`
}

func TestContainerLimits(t *testing.T) {
	f := func(spec, want string, item corev1.LimitRangeItem) {
		t.Helper()
		if item.Type == "" {
			item.Type = corev1.LimitTypeContainer
		}
		checkViolations(t, "v1/pods", spec, want, item)
	}
	half := corev1.LimitRangeItem{Min: list("cpu=500m")}
	f(pod(`{"requests":{"cpu":"500m"}}`), ``, half)
	f(pod(`{"requests":{"cpu":0.5},"limits":{"cpu":"1"}}`), ``, half)
	f(pod(`{}`), `minimum cpu usage per Container is 500m.  No request is specified`, half)
	f(pod(`{"requests":{"cpu":"499m"}}`), `minimum cpu usage per Container is 500m, but request is 499m`, half)
	f(pod(`{"requests":{"cpu":"1"},"limits":{"cpu":"100m"}}`), `minimum cpu usage per Container is 500m, but limit is 100m`, half)
	f(`{}`, ``, half)

	one := corev1.LimitRangeItem{Max: list("cpu=1")}
	f(pod(`{"limits":{"cpu":"1"}}`), ``, one)
	f(pod(`{"requests":{"cpu":"1"}}`), `maximum cpu usage per Container is 1.  No limit is specified`, one)
	f(pod(`{"limits":{"cpu":"1001m"}}`), `maximum cpu usage per Container is 1, but limit is 1001m`, one)
	f(pod(`{"limits":{"cpu":"1"},"requests":{"cpu":"2"}}`), `maximum cpu usage per Container is 1, but request is 2`, one)

	f(pod(`{"requests":{"cpu":"500m"},"limits":{"cpu":"500m"}}`), ``, half)
	f(pod(`{"requests":{"cpu":"1"},"limits":{"cpu":"1"}}`), ``, one)
	f(pod(`{"limits":{"cpu":"-2"}}`), ``, corev1.LimitRangeItem{Max: list("cpu=-1")}) // a missing request is not too much

	ratio := corev1.LimitRangeItem{MaxLimitRequestRatio: list("cpu=1500m")}
	f(pod(`{"limits":{"cpu":"750m"},"requests":{"cpu":"500m"}}`), ``, ratio)
	f(pod(`{"limits":{"cpu":"2"},"requests":{"cpu":"1"}}`),
		`cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000`, ratio)
	f(pod(`{"limits":{"cpu":"2"},"requests":{"cpu":"0"}}`),
		`cpu max limit to request ratio per Container is 1500m, but no request is specified or request is 0`, ratio)
	f(pod(`{"limits":{"cpu":"0"},"requests":{"cpu":"1"}}`),
		`cpu max limit to request ratio per Container is 1500m, but no limit is specified or limit is 0`, ratio)
	f(pod(`{"requests":{"cpu":"1"}}`),
		`cpu max limit to request ratio per Container is 1500m, but no limit is specified or limit is 0`, ratio)

	// Amounts that do not fit into thousandths are compared in whole units.
	large := corev1.LimitRangeItem{Max: list("cpu=9223372036854775807")}
	f(pod(`{"limits":{"cpu":"9223372036854775807"}}`), ``, large)
	f(pod(`{"requests":{"cpu":"1"},"limits":{"cpu":"2"}}`), ``, corev1.LimitRangeItem{MaxLimitRequestRatio: list("cpu=9223372036854776")})
	least := corev1.LimitRangeItem{Min: list("cpu=600m")}
	f(pod(`{"requests":{"cpu":"500m"},"limits":{"cpu":"9223372036854776"}}`), ``, least)
	f(pod(`{"requests":{"cpu":"500m"},"limits":{"cpu":"9223372036854775"}}`),
		`minimum cpu usage per Container is 600m, but request is 500m`, least)

	// Init containers come after the others, and equal messages are merged.
	two := corev1.LimitRangeItem{Min: list("cpu=1 memory=1Ki"), Max: list("memory=2Ki")}
	f(`{"initContainers":[{"resources":{"requests":{"cpu":"1","memory":"1Ki"},"limits":{"memory":"4Ki"}}}],`+
		`"containers":[{"resources":{"limits":{"memory":"3Ki"}}},{"resources":{"limits":{"memory":"3Ki"}}}]}`,
		`[minimum cpu usage per Container is 1.  No request is specified, minimum memory usage per Container is 1Ki.  No `+
			`request is specified, `+
			`maximum memory usage per Container is 2Ki, but limit is 3Ki, maximum memory usage per Container is 2Ki, but `+
			`limit is 4Ki]`, two)
}

func TestPodLimits(t *testing.T) {
	f := func(spec, want string, item corev1.LimitRangeItem) {
		t.Helper()
		item.Type = corev1.LimitTypePod
		checkViolations(t, "v1/pods", spec, want, item)
	}
	most := corev1.LimitRangeItem{Max: list("memory=1Gi")}
	const half = `{"limits":{"memory":"512Mi"}}`
	f(pod(half, half), ``, most)
	f(pod(half, half, half), `maximum memory usage per Pod is 1Gi, but limit is 1536Mi`, most)
	f(pod(half, `{}`), ``, most)
	f(pod(`{}`), `maximum memory usage per Pod is 1Gi.  No limit is specified`, most)

	with := func(init string) string {
		return strings.TrimSuffix(pod(half, half), "}") + `,"initContainers":[` + init + `]}`
	}
	const restarting = `{"restartPolicy":"Always","resources":` + half + `}`
	f(with(`{"resources":`+half+`},{"resources":{"limits":{"memory":"1Gi"}}}`), ``, most)
	f(with(`{"resources":{"limits":{"memory":"2Gi"}}}`), `maximum memory usage per Pod is 1Gi, but limit is 2Gi`, most)
	f(with(restarting), `maximum memory usage per Pod is 1Gi, but limit is 1536Mi`, most)
	f(with(restarting+`,{"resources":{"limits":{"memory":"2Gi"}}}`), `maximum memory usage per Pod is 1Gi, but limit is 2560Mi`, most)
	f(with(`{"resources":{"limits":{"memory":"2Gi"}}},`+restarting), `maximum memory usage per Pod is 1Gi, but limit is 2Gi`, most)
	f(strings.TrimSuffix(pod(`{}`), "}")+`,"initContainers":[`+restarting+`,`+restarting+`]}`, ``, most)

	// The amount of an init container counts even if it is zero or equal to that of the
	// others. A sidecar container counts by itself, too, in case the sum of the others is
	// negative.
	f(`{"containers":[{}],"initContainers":[{"resources":{"limits":{"memory":"0"}}}]}`, ``, most)
	f(`{"containers":[{"resources":{"limits":{"memory":"2Gi"}}}],"initContainers":[{"resources":{"limits":{"memory":"2147483648"}}}]}`,
		`maximum memory usage per Pod is 1Gi, but limit is 2Gi`, most)
	const restarts = `{"restartPolicy":"Always","resources":{"limits":{"memory":"1Gi"}}}`
	f(`{"containers":[{"resources":{"limits":{"memory":"-4Gi"}}}],"initContainers":[`+restarts+`,`+restarts+`]}`,
		`maximum memory usage per Pod is 1Gi, but limit is 2Gi`, most)

	// The resources of the pod itself come first, for CPU and memory.
	whole := func(resources string) string {
		return strings.TrimSuffix(pod(half, half), "}") + `,"resources":` + resources + `}`
	}
	f(whole(`{"limits":{"memory":"2Gi"}}`), `maximum memory usage per Pod is 1Gi, but limit is 2Gi`, most)
	f(whole(`{"limits":{"memory":"100Mi"}}`), ``, most)
	most.Type = corev1.LimitTypePod
	for release, want := range map[string]string{"1.33": ``, "1.34": `maximum memory usage per Pod is 1Gi, but limit is 2Gi`} {
		plugin := admissiontest.Emulating(t, Plugin(), release)
		checkViolationsOf(t, plugin, "v1/pods", whole(`{"limits":{"memory":"2Gi"}}`), want, most)
	}
	f(whole(`{"limits":{"example.com/gpu":"3"}}`), `maximum example.com/gpu usage per Pod is 1.  No limit is specified`,
		corev1.LimitRangeItem{Max: list("example.com/gpu=1")})
	f(whole(`{"limits":{"hugepages-2Mi":"4Mi"}}`), `maximum hugepages-2Mi usage per Pod is 2Mi.  No limit is specified`,
		corev1.LimitRangeItem{Max: list("hugepages-2Mi=2Mi")})
	f(pod(`{"requests":{"cpu":"75m"}}`, `{"requests":{"cpu":"75m"}}`), ``, corev1.LimitRangeItem{Min: list("cpu=150m")})
	f(pod(`{"requests":{"cpu":"75m"}}`, `{"requests":{"cpu":"75m"}}`), `minimum cpu usage per Pod is 151m, but request is 150m`,
		corev1.LimitRangeItem{Min: list("cpu=151m")})
}

func TestClaimLimits(t *testing.T) {
	item := corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Min: list("storage=1Gi"), Max: list("storage=5Gi")}
	f := func(resources, want string) {
		t.Helper()
		checkViolations(t, "v1/persistentvolumeclaims", `{"resources":`+resources+`}`, want, item,
			corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: list("storage=1Ti")})
	}
	f(`{"requests":{"storage":"1Gi"}}`, ``)
	f(`{"requests":{"storage":"5Gi"},"limits":{"storage":"1"}}`, ``)
	f(`{"requests":{"storage":"500Mi"}}`, `minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi`)
	f(`{"requests":{"storage":"6Gi"}}`, `maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi`)
	f(`null`, `[minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified, `+
		`maximum storage usage per PersistentVolumeClaim is 5Gi.  No request is specified]`)
}

// TestEveryItem has several items of which the last one is violated, and several resources,
// whose messages are sorted.
func TestEveryItem(t *testing.T) {
	pods := corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: list("cpu=1")}
	containers := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: list("cpu=2")}
	checkViolations(t, "v1/pods", pod(`{"requests":{"cpu":"1"}}`), `minimum cpu usage per Container is 2, but request is 1`,
		pods, containers)
	small, large := corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Max: list("storage=2")},
		corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Max: list("storage=1")}
	checkViolations(t, "v1/persistentvolumeclaims", `{"resources":{"requests":{"storage":"2"}}}`,
		`maximum storage usage per PersistentVolumeClaim is 1, but request is 2`, small, large)
	var several, messages []string
	for name := 'a'; name <= 'j'; name++ {
		several = append(several, fmt.Sprintf("x/%c=1", name))
		messages = append(messages, fmt.Sprintf("minimum x/%c usage per Container is 1.  No request is specified", name))
	}
	checkViolations(t, "v1/pods", pod(`{}`), `[`+strings.Join(messages, ", ")+`]`,
		corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: list(strings.Join(several, " "))})
}

// TestMessagesMax has messages of as many bytes as allowed before the next limit is checked,
// and of one byte more.
func TestMessagesMax(t *testing.T) {
	for _, length := range []int{admission.MessagesBytesMax - 1, admission.MessagesBytesMax, admission.MessagesBytesMax + 1} {
		v := violations{review: new(codec.Review), length: length}
		source := func(string) (request, limit amount, err error) { return request, limit, nil }
		if err := v.check(list("cpu=1"), source, belowMin(corev1.LimitTypeContainer)); err != nil {
			t.Fatal(err)
		}
		if added := len(v.messages); (added == 1) != (length <= admission.MessagesBytesMax) ||
			v.length != length+len(strings.Join(v.messages, "")) {
			t.Errorf("%d bytes: got %d more messages, and %d bytes", length, added, v.length)
		}
	}
}

// TestHandles has a pod that gets a default, violates a limit, and has an invalid quantity
// of a resource without a limit.
func TestHandles(t *testing.T) {
	item := defaults("cpu=1", "")
	item.Min = list("memory=1")
	chain := admissiontest.MustChain(t, Plugin(), "", limits("l", item,
		corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Min: list("storage=1")}))
	object := `{"spec":{"containers":[{"name":"c","resources":{"requests":{"x/y":"much"}}}]}}`
	f := func(body []byte, mutated, validated admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, mutated, body)
		admissiontest.CheckOutcome(t, chain, admission.Validate, validated, body)
	}
	resize := func(body []byte) []byte {
		return bytes.Replace(body, []byte(`"name":"name"`), []byte(`"subResource":"resize","name":"name"`), 1)
	}
	const deleted = `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`
	f(admissiontest.Body(codec.Create, "v1/pods", object), admission.OutcomePatched, admission.OutcomeDenied)
	f(admissiontest.Body(codec.Update, "v1/pods", object), admission.OutcomeAllowed, admission.OutcomeAllowed)
	f(resize(admissiontest.Body(codec.Update, "v1/pods", object)), admission.OutcomePatched, admission.OutcomeDenied)
	f(resize(admissiontest.UpdateBody("v1/pods", object, deleted)), admission.OutcomeAllowed, admission.OutcomeAllowed)
	f(resize(admissiontest.Body(codec.Create, "v1/pods", object)), admission.OutcomeAllowed, admission.OutcomeAllowed)
	f(admissiontest.Body(codec.Create, "v1/podtemplates", object), admission.OutcomeAllowed, admission.OutcomeAllowed)
	f(admissiontest.Body(codec.Create, "v1/persistentvolumeclaims", object), admission.OutcomeAllowed, admission.OutcomeDenied)
	f(admissiontest.UpdateBody("v1/persistentvolumeclaims", object, `{}`), admission.OutcomeAllowed, admission.OutcomeDenied)
	f(admissiontest.UpdateBody("v1/persistentvolumeclaims", object, deleted), admission.OutcomeAllowed, admission.OutcomeAllowed)
	f(admissiontest.Body(codec.Delete, "v1/pods", object), admission.OutcomeAllowed, admission.OutcomeAllowed)
	f(bytes.Replace(admissiontest.Body(codec.Create, "v1/pods", object), []byte(`"namespace":"namespace"`),
		[]byte(`"namespace":"other"`), 1),
		admission.OutcomeAllowed, admission.OutcomeAllowed)
}

// TestFailure has fields that cannot be read or changed: the plugin fails without panic or patch, and the
// pod is not allowed.
func TestFailure(t *testing.T) {
	item := defaults("cpu=1", "")
	item.Min = list("memory=1")
	chain := admissiontest.MustChain(t, Plugin(), "",
		limits("l", item, corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: list("cpu=1")}))
	f := func(phase admission.Phase, spec string) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, phase, admission.OutcomeErrored,
			admissiontest.Body(codec.Create, "v1/pods", `{"spec":`+spec+`}`))
	}
	f(admission.Mutate, `{"containers":[1]}`)
	f(admission.Mutate, `{"containers":[{"resources":[]}]}`)
	f(admission.Mutate, `{"containers":[{"resources":{"requests":"cpu"}}]}`)
	for _, quantity := range []string{`"much"`, `null`, `{}`, `""`, `true`} {
		f(admission.Validate, pod(`{"requests":{"memory":`+quantity+`}}`))
		f(admission.Validate, pod(`{"requests":{"memory":"1","cpu":`+quantity+`}}`))
		f(admission.Validate, `{"initContainers":[{"resources":{"requests":{"memory":"1","cpu":`+quantity+`}}}]}`)
		f(admission.Validate, `{"resources":{"requests":{"cpu":`+quantity+`}}}`)
	}
	// Each kind of limit reads the quantity.
	for _, item := range []corev1.LimitRangeItem{{Min: list("storage=1")}, {Max: list("storage=1")},
		{MaxLimitRequestRatio: list("storage=1")}} {
		for kind, resource := range map[corev1.LimitType]string{"Container": "pods", "Pod": "pods",
			"PersistentVolumeClaim": "persistentvolumeclaims"} {
			if item.Type = kind; kind == "PersistentVolumeClaim" && item.MaxLimitRequestRatio != nil {
				continue // claims have no limits
			}
			const odd = `"resources":{"requests":{"storage":"much"}}`
			admissiontest.CheckOutcome(t, admissiontest.MustChain(t, Plugin(), "", limits("l", item)), admission.Validate,
				admission.OutcomeErrored,
				admissiontest.Body(codec.Create, "v1/"+resource, `{"spec":{`+odd+`,"containers":[{`+odd+`}]}}`))
		}
	}
}

// TestManyViolations would time out if the cost were quadratic, as that of upstream's
// aggregate is.
func TestManyViolations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "",
		limits("l", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: list("cpu=1M")}))
	const n = 30_000
	var containers []string
	for i := range n {
		containers = append(containers, fmt.Sprintf(`{"resources":{"requests":{"cpu":"%d"}}}`, i))
	}
	body := admissiontest.Body(codec.Create, "v1/pods", `{"spec":{"containers":[`+strings.Join(containers, ",")+`]}}`)
	got := admissiontest.Answer(t, chain, admission.Validate, body)
	var whole int // the length of the message before it was truncated
	_, note, _ := bytes.Cut(got, []byte("(truncated, "))
	if _, err := fmt.Sscan(string(note), &whole); err != nil || whole < n*len("minimum cpu usage") {
		t.Errorf("got a message of %d bytes, %v, want one with %d violations", whole, err, n)
	}
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", limits("l", defaults("cpu=1", "")))
	create := corpus.MustRead("pods-create-v1-1.json")
	for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
		admissiontest.NoAllocations(t, chain, phase, admission.OutcomeAllowed, create)
	}
}

func BenchmarkPod(b *testing.B) {
	f := func(name string, phase admission.Phase, want admission.Outcome, body []byte, objects ...runtime.Object) {
		b.Run(name, func(b *testing.B) {
			admissiontest.Benchmark(b, admissiontest.MustChain(b, Plugin(), "", objects...), phase, want, body)
		})
	}
	body := corpus.MustRead("pods-create-v1-1.json")
	f("no LimitRange", admission.Mutate, admission.OutcomeAllowed, body)
	f("no LimitRange, validate", admission.Validate, admission.OutcomeAllowed, body)
	f("defaults", admission.Mutate, admission.OutcomePatched, body, recorded())
	checked := recorded()
	checked.(*corev1.LimitRange).Spec.Limits = append(checked.(*corev1.LimitRange).Spec.Limits,
		corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: list("cpu=10m memory=16Mi"), Max: list("cpu=4 memory=8Gi")},
		corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: list("cpu=8 memory=16Gi")})
	f("limits", admission.Validate, admission.OutcomeAllowed, body, checked)
}
