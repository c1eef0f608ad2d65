package resourcequota

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// decoded returns the review of a request.
func decoded(t *testing.T, body []byte) *codec.Review {
	t.Helper()
	review := new(codec.Review)
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	return review
}

// measured returns what an evaluator measures.
func measured(t *testing.T, e evaluator, object string) item {
	t.Helper()
	review := decoded(t, admissiontest.Body(codec.Create, "v1/any", object))
	i, err := e.measure(t.Context(), review, review.Object.Root())
	if err != nil || review.Err() != nil {
		t.Fatalf("%s: %v, %v", object, err, review.Err())
	}
	return i
}

// uses checks the usage of an object; want is a list in any order.
func uses(t *testing.T, e evaluator, object, want string) {
	t.Helper()
	sorted := func(list string) string { return strings.Join(slices.Sorted(strings.SplitSeq(list, ",")), ",") }
	if got := show(measured(t, e, object).usage()); sorted(got) != sorted(want) {
		t.Errorf("%s:\n got %s\nwant %s", object, got, want)
	}
}

func TestServiceUsage(t *testing.T) {
	f := func(spec string, ports, balancers int) {
		t.Helper()
		uses(t, services{}, `{"spec":`+spec+`}`,
			fmt.Sprintf("count/services=1,services=1,services.loadbalancers=%d,services.nodeports=%d", balancers, ports))
	}
	f(`{}`, 0, 0)
	f(`{"type":"ClusterIP","ports":[{},{}]}`, 0, 0)
	f(`{"type":"NodePort","ports":[{},{"nodePort":0}]}`, 2, 0)
	f(`{"type":"LoadBalancer"}`, 0, 1)
	f(`{"type":"LoadBalancer","ports":[{},{"nodePort":7}]}`, 2, 1)
	f(`{"type":"LoadBalancer","ports":[{},{"nodePort":7}],"allocateLoadBalancerNodePorts":null}`, 2, 1)
	f(`{"type":"LoadBalancer","ports":[{},{"nodePort":7}],"allocateLoadBalancerNodePorts":true}`, 2, 1)
	f(`{"type":"LoadBalancer","ports":[{},{"nodePort":7},{"nodePort":0},{"nodePort":0},{"nodePort":1},{"nodePort":"x"}],`+
		`"allocateLoadBalancerNodePorts":false}`, 2, 1)
}

func TestVolumeUsage(t *testing.T) {
	f := func(object, want string) { t.Helper(); uses(t, volumes{}, object, want) }
	const one = "count/persistentvolumeclaims=1,"
	f(`{}`, one+"persistentvolumeclaims=1")
	f(`{"spec":{"storageClassName":""}}`, one+"persistentvolumeclaims=1")
	f(`{"spec":{"storageClassName":"gold"}}`, one+"gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,persistentvolumeclaims=1")
	f(`{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"old"}},"spec":{"storageClassName":"gold",`+
		`"resources":{"requests":{"storage":"1500m"}}}}`,
		one+"old.storageclass.storage.k8s.io/persistentvolumeclaims=1,old.storageclass.storage.k8s.io/requests.storage=2,"+
			"persistentvolumeclaims=1,requests.storage=2")
	sized := func(requested, allocated, want string) {
		t.Helper()
		f(fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q,"cpu":"1"}}},"status":{"allocatedResources":{%s}}}`,
			requested, allocated),
			one+"persistentvolumeclaims=1,requests.storage="+want)
	}
	sized("1Gi", ``, "1Gi")
	sized("1Gi", `"cpu":"9"`, "1Gi")
	sized("1Gi", `"storage":"2Gi"`, "2Gi")
	sized("1Gi", `"storage":"500Mi"`, "1Gi")
	sized("1Gi", `"storage":"1073741824"`, "1Gi") // the same amount in another format
	sized("1", `"storage":"1500m"`, "2")

	v := measured(t, volumes{},
		`{"spec":{"volumeAttributesClassName":"a"},"status":{"currentVolumeAttributesClassName":"b",`+
			`"modifyVolumeStatus":{"targetVolumeAttributesClassName":"c"}}}`)
	none := measured(t, volumes{}, `{}`)
	selector := func(operator corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopeVolumeAttributesClass,
			Operator: operator, Values: values}
	}
	for _, name := range []string{"a", "b", "c"} {
		matches(t, v, selector(corev1.ScopeSelectorOpIn, name), true)
	}
	matches(t, v, selector(corev1.ScopeSelectorOpIn, "d"), false)
	matches(t, v, selector(corev1.ScopeSelectorOpExists), true)
	matches(t, measured(t, volumes{}, `{"spec":{"volumeAttributesClassName":"a"}}`), selector(corev1.ScopeSelectorOpExists), true)
	matches(t, none, selector(corev1.ScopeSelectorOpExists), false)
	matches(t, none, selector(corev1.ScopeSelectorOpDoesNotExist), true)
	matches(t, v, corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopeBestEffort,
		Operator: corev1.ScopeSelectorOpExists}, false)
	matches(t, measured(t, services{}, `{}`),
		corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopeBestEffort, Operator: corev1.ScopeSelectorOpExists},
		false)
}

func matches(t *testing.T, i item, selector corev1.ScopedResourceSelectorRequirement, want bool) {
	t.Helper()
	if got, err := i.matches(selector); err != nil || got != want {
		t.Errorf("%v: got %v, %v, want %v", selector, got, err, want)
	}
}

func TestPodUsage(t *testing.T) {
	f := func(object, want string) { t.Helper(); uses(t, pods{}, object, want) }
	with := func(resources string) string {
		return `{"spec":{"containers":[{"name":"c","resources":` + resources + `}]}}`
	}
	f(`{}`, "count/pods=1,pods=1")
	f(with(`{"requests":{"cpu":"1","memory":"2","ephemeral-storage":"3"},"limits":{"cpu":"4","memory":"5","ephemeral-storage":"6"}}`),
		"count/pods=1,cpu=1,ephemeral-storage=3,limits.cpu=4,limits.ephemeral-storage=6,limits.memory=5,memory=2,pods=1,"+
			"requests.cpu=1,requests.ephemeral-storage=3,requests.memory=2")
	f(with(`{"requests":{"hugepages-2Mi":"2Mi"}}`), "count/pods=1,hugepages-2Mi=2Mi,pods=1,requests.hugepages-2Mi=2Mi")
	f(with(`{"requests":{"x.y/gpu":"1"}}`), "count/pods=1,pods=1,requests.x.y/gpu=1")
	f(with(`{"requests":{"deviceclass.resource.kubernetes.io/gpu":"1"}}`),
		"count/pods=1,pods=1,requests.deviceclass.resource.kubernetes.io/gpu=1")
	f(with(`{"requests":{"kubernetes.io/x":"1","other":"1","requests.x.y/z":"1","x.y/`+strings.Repeat("z", 64)+`":"1"}}`),
		"count/pods=1,pods=1")

	// A Pod that has ended counts only as an object.
	ended := func(status, metadata string, want bool) {
		t.Helper()
		used := "count/pods=1,pods=1"
		if want {
			used = "count/pods=1"
		}
		f(`{"metadata":`+metadata+`,"status":`+status+`}`, used)
	}
	now := func(ago time.Duration) string { return time.Now().Add(-ago).UTC().Format(time.RFC3339) }
	ended(`{"phase":"Running"}`, `{}`, false)
	ended(`{"phase":"Failed"}`, `{}`, true)
	ended(`{"phase":"Succeeded"}`, `{}`, true)
	ended(`{}`, fmt.Sprintf(`{"deletionTimestamp":%q}`, now(time.Hour)), false)
	ended(`{}`, `{"deletionGracePeriodSeconds":0}`, false)
	ended(`{}`, fmt.Sprintf(`{"deletionTimestamp":%q,"deletionGracePeriodSeconds":60}`, now(time.Hour)), true)
	ended(`{}`, fmt.Sprintf(`{"deletionTimestamp":%q,"deletionGracePeriodSeconds":7200}`, now(time.Hour)), false)
}

// TestReleases tests what quotas count otherwise in older releases.
func TestReleases(t *testing.T) {
	const whole = `{"spec":{"resources":{"requests":{"cpu":"3"}},"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}`
	const empty = `{"spec":{"resources":{},"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}`
	const resized = `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}},
			{"name":"d","resources":{"requests":{"cpu":"3"}}}],
		"initContainers":[{"name":"s","restartPolicy":"Always"},{"name":"i","resources":{"requests":{"cpu":"2"}}}]},
		"status":{"containerStatuses":[{"name":"c","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"9"}}},
			{"name":"d","resources":{},"allocatedResources":{"cpu":"2"}}],
		"initContainerStatuses":[{"name":"s","resources":{"requests":{"cpu":"1"}}},
			{"name":"i","resources":{"requests":{"cpu":"100"}}}]}}`
	const device = `{"spec":{"containers":[{"resources":{"requests":{"deviceclass.resource.kubernetes.io/gpu":"2"}}}]}}`
	const negative = `{"spec":{"containers":[{"resources":{"requests":{"cpu":"-1"}}}]}}`
	scoped := func(scope corev1.ResourceQuotaScope) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}
	}
	for release, want := range map[string]struct {
		cpu, resizedCPU, device     string
		missing                     bool // the container must name the memory that it requests
		emptyIsBest, negativeIsBest bool
		classes                     bool
	}{
		"1.33": {"1", "6", "", true, false, true, false},
		"1.34": {"3", "6", "", false, true, true, true},
		"1.36": {"3", "6", ",requests.deviceclass.resource.kubernetes.io/gpu=2", false, true, true, true},
		"1.37": {"3", "101", ",requests.deviceclass.resource.kubernetes.io/gpu=2", false, false, false, true},
	} {
		version, _, err := admission.ParseVersion(release)
		if err != nil {
			t.Fatal(err)
		}
		uses(t, pods{version}, whole, "count/pods=1,cpu="+want.cpu+",pods=1,requests.cpu="+want.cpu)
		uses(t, pods{version}, resized, "count/pods=1,cpu="+want.resizedCPU+",limits.cpu=9,pods=1,requests.cpu="+want.resizedCPU)
		uses(t, pods{version}, device, "count/pods=1,pods=1"+want.device)
		quotas := []corev1.ResourceName{"requests.deviceclass.resource.kubernetes.io/gpu"}
		if got := len(pods{version}.tracked(quotas)); got != min(len(want.device), 1) {
			t.Errorf("%s: got %d names of device classes tracked, want %q", release, got, want.device)
		}
		if err := measured(t, pods{version}, whole).constraints([]corev1.ResourceName{"requests.memory"}); (err != nil) != want.missing {
			t.Errorf("%s: got %v, want an error %v", release, err, want.missing)
		}
		matches(t, measured(t, pods{version}, empty), scoped(corev1.ResourceQuotaScopeBestEffort), want.emptyIsBest)
		matches(t, measured(t, pods{version}, negative), scoped(corev1.ResourceQuotaScopeBestEffort), want.negativeIsBest)
		matches(t, measured(t, volumes{version}, `{"spec":{"volumeAttributesClassName":"gold"}}`),
			scoped(corev1.ResourceQuotaScopeVolumeAttributesClass), want.classes)
	}
}

func TestPodScopes(t *testing.T) {
	f := func(object string, scope corev1.ResourceQuotaScope, want bool) {
		t.Helper()
		matches(t, measured(t, pods{}, object),
			corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, want)
	}
	both := func(object string, scope, not corev1.ResourceQuotaScope, want bool) {
		t.Helper()
		f(object, scope, want)
		f(object, not, !want)
	}
	const terminating, notTerminating = corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating
	both(`{}`, terminating, notTerminating, false)
	both(`{"spec":{"activeDeadlineSeconds":-1}}`, terminating, notTerminating, false)
	both(`{"spec":{"activeDeadlineSeconds":0}}`, terminating, notTerminating, true)
	both(`{"spec":{"activeDeadlineSeconds":1}}`, terminating, notTerminating, true)

	const best, notBest = corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort
	both(`{}`, best, notBest, true)
	for _, resources := range []string{`{"requests":{"cpu":"1"}}`, `{"requests":{"memory":"1"}}`, `{"limits":{"cpu":"1"}}`,
		`{"limits":{"memory":"1"}}`} {
		both(`{"spec":{"containers":[{},{"resources":`+resources+`}]}}`, best, notBest, false)
		both(`{"spec":{"initContainers":[{},{"resources":`+resources+`}]}}`, best, notBest, false)
		both(`{"spec":{"resources":`+resources+`}}`, best, notBest, false)
	}
	both(`{"spec":{"containers":[{"resources":{"requests":{"cpu":"0","ephemeral-storage":"1"}}}]}}`, best, notBest, true)
	both(`{"spec":{"resources":{"requests":{"cpu":"0"}},"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}`, best, notBest, true)
	both(`{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]},"status":{"qosClass":"BestEffort"}}`, best, notBest, true)
	both(`{"status":{"qosClass":"Burstable"}}`, best, notBest, false)

	const cross = corev1.ResourceQuotaScopeCrossNamespacePodAffinity
	f(`{}`, cross, false)
	for _, kind := range []string{"podAffinity", "podAntiAffinity"} {
		required := func(term string, want bool) {
			t.Helper()
			f(`{"spec":{"affinity":{"`+kind+`":{"requiredDuringSchedulingIgnoredDuringExecution":[{},`+term+`]}}}}`, cross, want)
			f(`{"spec":{"affinity":{"`+kind+`":{"preferredDuringSchedulingIgnoredDuringExecution":[{},{"podAffinityTerm":`+term+`}]}}}}`,
				cross, want)
		}
		required(`{"topologyKey":"zone"}`, false)
		required(`{"namespaces":[]}`, false)
		required(`{"namespaceSelector":null}`, false)
		required(`{"namespaces":["a"]}`, true)
		required(`{"namespaceSelector":{}}`, true)
	}

	class := func(name string, operator corev1.ScopeSelectorOperator, want bool, values ...string) {
		t.Helper()
		matches(t, measured(t, pods{}, `{"spec":{"priorityClassName":"`+name+`"}}`),
			corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: operator,
				Values: values}, want)
	}
	class("", corev1.ScopeSelectorOpExists, false)
	class("high", corev1.ScopeSelectorOpExists, true)
	class("high", corev1.ScopeSelectorOpIn, true, "high")
	class("high", corev1.ScopeSelectorOpIn, false, "low")
	class("high", corev1.ScopeSelectorOpDoesNotExist, false)
	class("", corev1.ScopeSelectorOpDoesNotExist, true)
	class("", corev1.ScopeSelectorOpIn, false, "")
	class("", corev1.ScopeSelectorOpNotIn, true, "high")
	f(`{"spec":{"activeDeadlineSeconds":1,"priorityClassName":"high"}}`, "Other", false)
	p := measured(t, pods{}, `{"spec":{"priorityClassName":"high"}}`)
	for _, selector := range []corev1.ScopedResourceSelectorRequirement{
		{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: "Odd"},
		{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn},
	} {
		if _, err := p.matches(selector); selector.Operator == "Odd" &&
			!strings.HasSuffix(fmt.Sprint(err), `"Odd" is not a valid scope selector operator`) {
			t.Errorf("got %v", err)
		}
		if _, err := p.matches(selector); err == nil || !strings.HasPrefix(err.Error(), "failed to parse and convert selector: ") {
			t.Errorf("%v: got %v", selector, err)
		}
	}
}

// TestTracked checks which names in quotas an evaluator counts.
func TestTracked(t *testing.T) {
	names := resourcesNamed("count/pods pods cpu memory ephemeral-storage requests.cpu requests.memory " +
		"requests.ephemeral-storage limits.cpu limits.memory " +
		"limits.ephemeral-storage hugepages-2Mi requests.hugepages-2Mi requests.x.y/gpu requests.kubernetes.io/gpu x.y/gpu " +
		"requests.deviceclass.resource.kubernetes.io/gpu count/services services services.nodeports services.loadbalancers " +
		"count/persistentvolumeclaims persistentvolumeclaims requests.storage gold.storageclass.storage.k8s.io/persistentvolumeclaims " +
		"gold.storageclass.storage.k8s.io/requests.storage gold.storageclass.storage.k8s.io/other count/configmaps " +
		"configmaps resourcequotas " +
		"replicationcontrollers secrets count/resourceclaims.resource.k8s.io gpu.deviceclass.resource.k8s.io/devices " +
		"requests.example.com/card example.com/card other")
	f := func(e evaluator, want string) {
		t.Helper()
		if got := e.tracked(names); !slices.Equal(got, resourcesNamed(want)) {
			t.Errorf("%T:\n got %s\nwant %s", e, got, want)
		}
	}
	f(pods{}, "count/pods pods cpu memory ephemeral-storage requests.cpu requests.memory requests.ephemeral-storage "+
		"limits.cpu limits.memory "+
		"limits.ephemeral-storage hugepages-2Mi requests.hugepages-2Mi requests.x.y/gpu "+
		"requests.deviceclass.resource.kubernetes.io/gpu requests.example.com/card")
	f(services{}, "count/services services services.nodeports services.loadbalancers")
	f(volumes{}, "count/persistentvolumeclaims persistentvolumeclaims requests.storage "+
		"gold.storageclass.storage.k8s.io/persistentvolumeclaims "+
		"gold.storageclass.storage.k8s.io/requests.storage")
	for _, name := range []string{"configmaps", "resourcequotas", "replicationcontrollers", "secrets"} {
		e := objectsOf(codec.GroupVersionResource{Resource: name})
		if want := resourcesNamed("count/" + name + " " + name); !slices.Equal(e, want) {
			t.Errorf("%s: got %s", name, e)
		}
	}
	f(objectsOf(codec.GroupVersionResource{Resource: "configmaps"}), "count/configmaps configmaps")
	f(objectsOf(codec.GroupVersionResource{Resource: "other"}), "")
	if e := objectsOf(codec.GroupVersionResource{Group: "x.y", Resource: "secrets"}); !slices.Equal(e,
		resourcesNamed("count/secrets.x.y")) {
		t.Errorf("got %s", e)
	}
	f(devicesOf(t, deviceClass("gpu", ""), deviceClass("card", "example.com/card")),
		"requests.deviceclass.resource.kubernetes.io/gpu count/resourceclaims.resource.k8s.io "+
			"gpu.deviceclass.resource.k8s.io/devices requests.example.com/card")
	f(devicesOf(t), "count/resourceclaims.resource.k8s.io gpu.deviceclass.resource.k8s.io/devices")
}

func resourcesNamed(text string) (names []corev1.ResourceName) {
	for name := range strings.FieldsSeq(text) {
		names = append(names, corev1.ResourceName(name))
	}
	return names
}

func deviceClass(name, resource string) runtime.Object {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if resource != "" {
		class.Spec.ExtendedResourceName = &resource
	}
	return class
}

// devicesOf returns the evaluator of claims in a cluster with these objects.
func devicesOf(t *testing.T, objects ...runtime.Object) *devices {
	t.Helper()
	state, err := cluster.New(cluster.Options{Objects: append([]runtime.Object{}, objects...)})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Follow(t.Context(), Plugin().Needs...); err != nil {
		t.Fatal(err)
	}
	view := state.View(Plugin().Needs...)
	return &devices{classes: cluster.DeviceClasses.In(view), claims: cluster.ResourceClaims.In(view), pods: cluster.Pods.In(view)}
}

// TestIgnored has resources that quotas ignore, and similar ones that they count.
func TestIgnored(t *testing.T) {
	for name, want := range map[string]bool{
		"events": true, "bindings": true, "componentstatuses": true, "pods": false,
		"events.events.k8s.io": true, "others.events.k8s.io": false,
		"tokenreviews.authentication.k8s.io": true, "selfsubjectreviews.authentication.k8s.io": true,
		"others.authentication.k8s.io":              false,
		"subjectaccessreviews.authorization.k8s.io": true, "selfsubjectaccessreviews.authorization.k8s.io": true,
		"localsubjectaccessreviews.authorization.k8s.io": true, "selfsubjectrulesreviews.authorization.k8s.io": true,
		"others.authorization.k8s.io": false,
		"events.x.y":                  false,
	} {
		resource, group, _ := strings.Cut(name, ".")
		if got := isIgnored(codec.GroupVersionResource{Group: group, Resource: resource}); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestAgain has charges that were not written in a round.
func TestAgain(t *testing.T) {
	resource := schema.GroupResource{Resource: "resourcequotas"}
	conflict, gone, other := apierrors.NewConflict(resource, "q", errors.New("old")), apierrors.NewNotFound(resource,
		"q"), errors.New("broken")
	quotas := []*corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}}
	f := func(tries int, err error, changes, failed []int, verdict error, pending bool, charged string, answer error) {
		t.Helper()
		c := &charge{tries: tries, changes: changes, verdict: verdict, done: make(chan error, 1)}
		still := again(quotas, []*charge{c}, failed, err)
		if (len(still) == 1) != pending || strings.Join(c.charged, ",") != charged {
			t.Errorf("%d tries, %v: got %d pending, charged %s", tries, err, len(still), c.charged)
		}
		select {
		case got := <-c.done:
			if pending || !errors.Is(got, answer) && fmt.Sprint(got) != fmt.Sprint(&failure{answer}) {
				t.Errorf("%d tries, %v: got %v, want %v", tries, err, got, answer)
			}
		default:
			if !pending {
				t.Errorf("%d tries, %v: got no answer", tries, err)
			}
		}
	}
	f(0, other, []int{0, 1}, []int{1}, nil, true, "a", nil)
	f(0, other, []int{0}, []int{1}, nil, false, "a", nil)
	f(0, other, nil, []int{1}, errors.New("denied"), true, "", nil)
	for err, most := range map[error]int{other: failuresMax, conflict: conflictsMax, gone: conflictsMax} {
		f(most-2, err, []int{1}, []int{1}, nil, true, "", nil)
		f(most-1, err, []int{1}, []int{1}, nil, true, "", nil)
		f(most, err, []int{1}, []int{1}, nil, false, "", err)
	}
}

// TestLists has the functions on resource lists, which must not change their arguments.
func TestLists(t *testing.T) {
	large := "123456789012345678901234567890"
	a, b := resources("cpu", large, "memory", "2"), resources("cpu", "1", "pods", "3")
	f := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
	}
	f("add", show(add(a, b)), "cpu=123456789012345678901234567891,memory=2,pods=3")
	f("increase", show(increase(a, b)), "cpu=123456789012345678901234567889,memory=2")
	f("less", show(increase(resources("cpu", "1", "memory", "2"), resources("cpu", "2", "memory", "2"))), "")
	f("operands", show(a)+" "+show(b), "cpu="+large+",memory=2 cpu=1,pods=3")
	f("withoutZeros", show(withoutZeros(resources("cpu", "0", "memory", "2"))), "memory=2")
	f("negative", showNames(negative(resources("cpu", "-1", "memory", "0", "pods", "1"))), "cpu")
	f("exceeding", showNames(exceeding(resources("cpu", "2", "memory", "2", "pods", "9"), resources("cpu", "1", "memory", "2"))), "cpu")
}

func TestHandlesWhat(t *testing.T) {
	f := func(e evaluator, operation codec.Operation, subResource, old string, want bool) {
		t.Helper()
		body := admissiontest.Body(operation, "v1/any", `{}`)
		if old != "" {
			body = admissiontest.UpdateBody("v1/any", `{}`, old)
		}
		text := strings.Replace(string(body), `"operation"`, `"subResource":"`+subResource+`","operation"`, 1)
		if got := e.handles(decoded(t, []byte(text))); got != want {
			t.Errorf("%T %s %s %s: got %v", e, operation, subResource, old, got)
		}
	}
	f(services{}, codec.Create, "", "", true)
	f(services{}, codec.Update, "status", `{}`, false)
	f(volumes{}, codec.Create, "", "", true)
	f(volumes{}, codec.Update, "status", `{}`, true)
	f(volumes{}, codec.Update, "status", `null`, false)
	f(volumes{}, codec.Update, "scale", `{}`, false)
	f(objects{}, codec.Create, "", "", true)
	f(objects{}, codec.Update, "", `{}`, false)
	f(objects{}, codec.Create, "status", "", false)
	f(pods{}, codec.Create, "", "", true)
	f(pods{}, codec.Update, "resize", `{}`, true)
	f(pods{}, codec.Create, "resize", "", false)
	f(pods{}, codec.Update, "status", `{}`, false)
	f((*devices)(nil), codec.Create, "", "", true)
	f((*devices)(nil), codec.Update, "status", `{}`, false)

	// Whether a Pod terminates by itself decides which quotas apply.
	ends := func(before, after string, want bool) {
		t.Helper()
		if got := (pods{}).handles(decoded(t, admissiontest.UpdateBody("v1/pods", after, before))); got != want {
			t.Errorf("from %s to %s: got %v", before, after, got)
		}
	}
	seconds := func(n string) string { return `{"spec":{"activeDeadlineSeconds":` + n + `}}` }
	ends(`{}`, seconds("0"), true)
	ends(`{}`, seconds("1"), true)
	ends(seconds("0"), `{}`, true)
	ends(`{}`, seconds("-1"), false)
	ends(seconds("1"), seconds("0"), false)
	ends(`null`, seconds("1"), false)
}

// TestPodStatus has resources in the status of a Pod that differ from its requests.
func TestPodStatus(t *testing.T) {
	f := func(conditions, want string) {
		t.Helper()
		uses(t, pods{}, `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"4"}}}]},`+
			`"status":{"conditions":[`+conditions+
			`],"containerStatuses":[{"name":"c","allocatedResources":{"cpu":"1"},"resources":{"requests":{"cpu":"2"}}}]}}`,
			"count/pods=1,pods=1,cpu="+want+",requests.cpu="+want)
	}
	f(``, "4")
	f(`{"type":"PodResizePending","reason":"Infeasible"}`, "2")
	f(`{"type":"Ready"},{"type":"PodResizePending","reason":"Infeasible"}`, "2")
	f(`{"type":"PodResizePending","reason":"Deferred"}`, "4")
	f(`{"type":"Ready","reason":"Infeasible"}`, "4")
	f(`{"type":"PodResizePending","reason":"Infeasible"},{"type":"PodResizePending","reason":"Deferred"}`, "2")
	uses(t, pods{}, `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"4"}}}]},`+
		`"status":{"containerStatuses":[{"name":"c","resources":{"requests":{"cpu":"5"}}}]}}`,
		"count/pods=1,pods=1,cpu=5,requests.cpu=5")
}

// TestMustSpecify has a quota of a resource that a container does not specify.
func TestMustSpecify(t *testing.T) {
	p := measured(t, pods{}, `{"spec":{"containers":[{"name":"c"}]}}`)
	for name, want := range map[corev1.ResourceName]bool{
		"cpu": true, "memory": true, "requests.cpu": true, "requests.memory": true, "limits.cpu": true, "limits.memory": true,
		"pods": false, "ephemeral-storage": false, "requests.ephemeral-storage": false, "hugepages-2Mi": false, "requests.x.y/gpu": false,
	} {
		message := ""
		if want {
			message = "must specify " + string(name) + " for: c"
		}
		if err := p.constraints([]corev1.ResourceName{name}); want != (err != nil) || want && err.Error() != message {
			t.Errorf("%s: got %v, want %q", name, err, message)
		}
	}
}

// TestEvaluators has resources with names of resources in other groups.
func TestEvaluators(t *testing.T) {
	p := &plugin{devices: new(devices)}
	for name, counted := range map[string]bool{
		"pods": false, "services": false, "persistentvolumeclaims": false, "resourceclaims.resource.k8s.io": false,
		"pods.metrics.k8s.io": true, "services.x.y": true, "persistentvolumeclaims.x.y": true, "resourceclaims": true,
		"resourceclaims.x.y":                     true,
		"resourceclaimtemplates.resource.k8s.io": true, "configmaps": true,
	} {
		resource, group, _ := strings.Cut(name, ".")
		if _, got := p.evaluator(codec.GroupVersionResource{Group: group, Resource: resource}).(objects); got != counted {
			t.Errorf("%s: got %v, want it counted as an object: %v", name, got, counted)
		}
	}
}
