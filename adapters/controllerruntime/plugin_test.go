package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fastadmit/fastadmit/adapters/controllerruntime"
	"github.com/fastadmit/fastadmit/adapters/controllerruntime/internal/compare"
	fastadmit "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func webhook(handle func(ctx context.Context, request admission.Request) admission.Response) *admission.Webhook {
	return &admission.Webhook{Handler: admission.HandlerFunc(handle)}
}

func responds(response admission.Response) *admission.Webhook {
	return webhook(func(context.Context, admission.Request) admission.Response { return response })
}

var pod = admissiontest.UpdateBody("v1/pods",
	`{"metadata":{"name":"a","labels":{"a/b":"<c>"}},"spec":{"new":1e0,"containers":[{"name":"a","x":1},{"name":"b","x":2}]}}`,
	`{"metadata":{"name":"a"}}`)

// TestDenials compares all sorts of refusals.
func TestDenials(t *testing.T) {
	f := func(response admission.Response, code int32, message string) {
		t.Helper()
		for _, phase := range []fastadmit.Phase{fastadmit.Mutate, fastadmit.Validate} {
			got := compare.Same(t, responds(response), phase, pod)
			if got.Allowed || got.Status.Code != code || got.Status.Message != message {
				t.Errorf("got %v, want code %d and message %q", got, code, message)
			}
		}
	}
	status := func(err apierrors.APIStatus) (r admission.Response) {
		r.Result = new(err.Status())
		return r
	}
	f(admission.Denied("no"), 403, "no")
	f(admission.Denied(""), 403, "Forbidden")
	f(admission.Response{}, 400, "denied without explanation")
	f(admission.Errored(http.StatusInternalServerError, errors.New("broken")), 500, "broken")
	f(admission.Errored(0, errors.New("broken")), 400, "broken")
	f(admission.Denied("no").WithWarnings("one", "two"), 403, "no")
	f(status(apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", field.ErrorList{
		field.Required(field.NewPath("spec"), "is needed"), field.Invalid(field.NewPath("a").Key("b"), 1, "no"),
	})), 422, `Pod "a" is invalid: [spec: Required value: is needed, a[b]: Invalid value: 1: no]`)
	f(status(apierrors.NewTooManyRequests("later", 7)), 429, "later")
	f(status(apierrors.NewConflict(schema.GroupResource{Group: "g", Resource: "r"}, "n", errors.New("x"))), 409,
		`Operation cannot be fulfilled on r.g "n": x`)
	annotated := admission.Denied("no")
	annotated.AuditAnnotations = map[string]string{"key": "value", "b": ""}
	f(annotated, 403, "no")
	patched := admission.Patched("", jsonpatch.NewOperation("add", "/spec/a", 1))
	patched.Allowed = false
	if got := compare.Same(t, responds(patched), fastadmit.Mutate, pod); got.Allowed {
		t.Errorf("got %v, want a denial", got)
	}
}

// TestPanics compares the answer of a webhook that panics.
func TestPanics(t *testing.T) {
	panics := webhook(func(context.Context, admission.Request) admission.Response { panic("oh") })
	if got := compare.Same(t, panics, fastadmit.Validate, pod); got.Status.Code != 500 || got.Status.Message != "panic: oh [recovered]" {
		t.Errorf("got %v", got)
	}
	chain := compare.Chain(t, panics.WithRecoverPanic(false), fastadmit.Validate)
	admissiontest.CheckOutcome(t, chain, fastadmit.Validate, fastadmit.OutcomePanicked, pod)
}

// TestPatches compares patches with every operation, and what is wrong with some.
func TestPatches(t *testing.T) {
	f := func(want string, operations ...jsonpatch.Operation) {
		t.Helper()
		got := compare.Same(t, responds(admission.Patched("because", operations...).WithWarnings("w")), fastadmit.Mutate, pod)
		if text := fmt.Sprint(got.Object); !strings.Contains(text, want) {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	op := jsonpatch.NewOperation
	f("map[a:1", op("add", "/spec/a", 1))
	f("labels:map[a/b:d]", op("replace", "/metadata/labels/a~1b", "d"))
	f("[map[name:b x:2]]", op("remove", "/spec/containers/0", nil))
	f("[map[name:a x:1] map[name:b x:2] map[name:c]]", op("add", "/spec/containers/-", map[string]any{"name": "c"}))
	f("[map[name:c] map[name:a x:1] map[name:b x:2]]", op("add", "/spec/containers/0", map[string]any{"name": "c"}))
	f("[map[name:a x:1] map[name:b x:9]]", op("replace", "/spec/containers/-1/x", 9))
	f("name:a", op("test", "/metadata/name", "a"))
	f("spec:map[]", op("add", "/spec", map[string]any{}))
	f("spec:map[]", op("add", "/spec/a", 1), op("replace", "/spec", map[string]any{}))
	f("map[]", op("replace", "", map[string]any{}))
	f("labels:map[a/b:<c>]", op("add", "/metadata/labels/z", "<"), op("remove", "/metadata/labels/z", nil))
	raw := func(text string) admission.Response {
		r := admission.Allowed("")
		r.Patch, r.PatchType = []byte(text), new(admissionv1.PatchTypeJSONPatch)
		return r
	}
	compare.Same(t,
		responds(raw(`[{"op":"move","from":"/metadata/labels","path":"/spec/moved"},{"op":"copy","from":"/spec/containers/0",`+
			`"path":"/spec/containers/1"}]`)), fastadmit.Mutate, pod)
	compare.Same(t, responds(raw(`[]`)), fastadmit.Mutate, pod)

	fails := func(response admission.Response, phase fastadmit.Phase, body []byte) {
		t.Helper()
		admissiontest.CheckOutcome(t, compare.Chain(t, responds(response), phase), phase, fastadmit.OutcomeErrored, body)
	}
	untyped, misfit := raw(`[{"op":"remove","path":"/spec"}]`), raw(`[{"op":"remove","path":"/spec"}]`)
	untyped.PatchType, misfit.PatchType = nil, new(admissionv1.PatchType("Merge"))
	fails(untyped, fastadmit.Mutate, pod)
	fails(misfit, fastadmit.Mutate, pod)
	fails(raw(``), fastadmit.Mutate, pod)
	fails(raw(`[`), fastadmit.Mutate, pod)
	fails(raw(`[{"op":"remove","path":"/nothing"}]`), fastadmit.Mutate, pod)
	fails(raw(`[{"op":"test","path":"/metadata/name","value":"b"}]`), fastadmit.Mutate, pod)
	fails(raw(`[{"op":"remove","path":"/spec"}]`), fastadmit.Validate, pod)
	fails(raw(`[{"op":"remove","path":"/spec"}]`), fastadmit.Mutate, admissiontest.Body(codec.Delete, "v1/pods", "null"))
}

// TestMinimal checks that a webhook that replaces the whole object patches only the difference.
func TestMinimal(t *testing.T) {
	rewrites := webhook(func(_ context.Context, r admission.Request) admission.Response {
		return admission.PatchResponseFromRaw([]byte(`{}`), []byte(strings.Replace(string(r.Object.Raw), `"name":"b"`, `"name":"c"`, 1)))
	})
	body := admissiontest.Body(codec.Create, "v1/pods", `{"spec":{"containers":[{"name":"a"},{"name":"b"}]},`+
		`"metadata":{"labels":{"a":"<"}}}`)
	got := string(admissiontest.Answer(t, compare.Chain(t, rewrites, fastadmit.Mutate), fastadmit.Mutate, body))
	want := `{"allowed":true,"patch":[{"op":"replace","path":"/spec/containers/1/name","value":"c"}],"patchType":"JSONPatch"}`
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// defaulter and validator are for Pods.
type defaulter struct{}

func (defaulter) Default(ctx context.Context, pod *corev1.Pod) error {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return err
	}
	switch pod.Name {
	case "denied":
		return errors.New("a bad name")
	case "conflict":
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, pod.Name, errors.New("x"))
	}
	pod.Annotations = map[string]string{"operation": string(request.Operation), "user": request.UserInfo.Username,
		"dryRun": fmt.Sprint(*request.DryRun)}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].ImagePullPolicy = corev1.PullAlways
	}
	pod.Spec.Tolerations = nil
	return nil
}

type validator struct{}

func (validator) ValidateCreate(_ context.Context, pod *corev1.Pod) (admission.Warnings, error) {
	return admission.Warnings{"created " + pod.Name + "."}, nil
}

func (validator) ValidateUpdate(_ context.Context, old, pod *corev1.Pod) (admission.Warnings, error) {
	return admission.Warnings{"updated " + old.Name + "."}, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod.Name,
		errors.New("never"))
}

func (validator) ValidateDelete(_ context.Context, pod *corev1.Pod) (admission.Warnings, error) {
	return nil, fmt.Errorf("%s stays", pod.Name)
}

// TestRecordings runs a Defaulter and a Validator on every review of the corpus:
// all operations, subresources, kinds that they cannot decode.
func TestRecordings(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	prunes := admission.DefaulterRemoveUnknownOrOmitableFields
	allowed := make(map[bool]int)
	for _, name := range corpus.Names() {
		body := corpus.MustRead(name)
		strange := []byte(strings.Replace(string(body), `"metadata":{`, `"metadata":{"fieldOfTomorrow":{"a":[1e0,null]},`, 1))
		for _, body := range [][]byte{body, strange} {
			if !strings.Contains(string(body), `"operation":"CONNECT"`) { // it has no object to patch
				allowed[compare.Same(t, admission.WithDefaulter(scheme, defaulter{}), fastadmit.Mutate, body).Allowed]++
				compare.Same(t, admission.WithDefaulter(scheme, defaulter{}, prunes), fastadmit.Mutate, body)
			}
			allowed[compare.Same(t, admission.WithValidator(scheme, validator{}), fastadmit.Validate, body).Allowed]++
		}
	}
	if allowed[true] < 50 || allowed[false] < 50 {
		t.Errorf("got %d allowed, %d denied, want more", allowed[true], allowed[false])
	}
	for _, name := range []string{"denied", "conflict"} {
		body := admissiontest.Body(codec.Create, "v1/pods", fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q}}`, name))
		compare.Same(t, admission.WithDefaulter(scheme, defaulter{}), fastadmit.Mutate, body)
	}
	multi := &admission.Webhook{Handler: admission.MultiMutatingHandler(
		admission.WithDefaulter(scheme, defaulter{}).Handler,
		responds(admission.Patched("", jsonpatch.NewOperation("add", "/spec/a", 1))).Handler)}
	compare.Same(t, multi, fastadmit.Mutate, corpus.MustRead("pods-create-v1-1.json"))
}

// TestMutates lets a Defaulter mutate twice, and checks which fields it changes.
func TestMutates(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	plugin := controllerruntime.Plugin(fastadmit.Plugin{Name: "Pods", Rules: []fastadmit.Rule{fastadmit.CreateUpdate("pods")}},
		controllerruntime.Webhooks{Mutating: admission.WithDefaulter(scheme, defaulter{})})
	admissiontest.Mutates(t, plugin, "", nil,
		"/metadata/annotations", "/metadata/annotations/*", "/spec/containers/*/imagePullPolicy", "/spec/tolerations")
}

// TestContext checks the values in a webhook's context.
func TestContext(t *testing.T) {
	var kept context.Context
	w := webhook(func(ctx context.Context, request admission.Request) admission.Response {
		kept = ctx
		_, ok := ctx.Deadline()
		log := admission.DefaultLogConstructor(logr.FromContextOrDiscard(ctx), &request)
		return admission.Denied(fmt.Sprint(ok, ctx.Err(), log.GetSink() != nil))
	})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(pod); err != nil {
		t.Fatal(err)
	}
	if _, err := compare.Chain(t, w, fastadmit.Validate).Review(ctx, review, fastadmit.Validate); err != nil {
		t.Fatal(err)
	}
	if got, want := review.Response.Status.Message, "Adapted: true <nil> true"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if kept.Err() == nil {
		t.Error("the context goes on after the webhook returned")
	}
}

// TestOwned keeps the request beyond the review, and changes it.
func TestOwned(t *testing.T) {
	for _, name := range []string{"pods-create-v1-1.json", "pods-exec-connect-v1-1.json", "pods-delete-v1-1.json"} {
		admissiontest.CheckOwned(t, corpus.MustRead(name), func(review *codec.Review) any {
			var kept admission.Request
			w := webhook(func(_ context.Context, request admission.Request) admission.Response {
				kept = request
				return admission.Allowed("")
			})
			if _, err := compare.Chain(t, w, fastadmit.Validate).Review(context.Background(), review, fastadmit.Validate); err != nil {
				t.Fatal(err)
			}
			return kept
		})
	}
	scribbles := webhook(func(_ context.Context, request admission.Request) admission.Response {
		clear(request.Object.Raw)
		return admission.Patched("", jsonpatch.NewOperation("add", "/spec/a", 1))
	})
	if got := compare.Adapted(t, scribbles, fastadmit.Mutate, pod); !strings.Contains(fmt.Sprint(got.Object), "spec:map[a:1") {
		t.Errorf("got %v", got)
	}
}

// TestRules checks that rules decide before anything is decoded.
func TestRules(t *testing.T) {
	calls := 0
	plugin := controllerruntime.Plugin(fastadmit.Plugin{Name: "Pods", Rules: []fastadmit.Rule{fastadmit.CreateUpdate("pods")}},
		controllerruntime.Webhooks{Validating: webhook(func(context.Context, admission.Request) admission.Response {
			calls++
			return admission.Denied("no")
		})})
	chain := admissiontest.MustChain(t, plugin, "")
	admissiontest.CheckOutcome(t, chain, fastadmit.Validate, fastadmit.OutcomeAllowed,
		admissiontest.Body(codec.Create, "v1/nodes", `{`+"}"))
	admissiontest.CheckOutcome(t, chain, fastadmit.Validate, fastadmit.OutcomeAllowed, admissiontest.Body(codec.Delete, "v1/pods", `{}`))
	if calls != 0 {
		t.Errorf("got %d calls, want 0", calls)
	}
	admissiontest.CheckOutcome(t, chain, fastadmit.Validate, fastadmit.OutcomeDenied, pod)
	admissiontest.NoAllocations(t, chain, fastadmit.Validate, fastadmit.OutcomeAllowed, admissiontest.Body(codec.Create, "v1/nodes", `{}`))

	large := admissiontest.Body(codec.Create, "v1/pods", `{"spec":{"containers":[`+strings.Repeat(`{},`, 100_000)+`{}]}}`)
	calls = 0
	if got := string(admissiontest.Answer(t, chain, fastadmit.Validate, large)); !strings.Contains(got, `"code":413`) || calls != 0 {
		t.Errorf("got %s after %d calls, want 413 after none", got, calls)
	}
}

// TestChain runs two plugins. The second sees the changes of the first, and its own changes are
// undone when it fails.
func TestChain(t *testing.T) {
	seen := ""
	adds := func(path string) *admission.Webhook {
		return responds(admission.Patched("", jsonpatch.NewOperation("add", path, 1)))
	}
	second := webhook(func(_ context.Context, request admission.Request) admission.Response {
		seen = string(request.Object.Raw)
		return admission.Patched("", jsonpatch.NewOperation("add", "/b", 1),
			jsonpatch.NewOperation("remove", "/nothing", nil)).WithWarnings("w")
	})
	table := []fastadmit.Plugin{
		controllerruntime.Plugin(fastadmit.Plugin{Name: "First", Rules: []fastadmit.Rule{fastadmit.Any()}},
			controllerruntime.Webhooks{Mutating: adds("/a")}),
		controllerruntime.Plugin(fastadmit.Plugin{Name: "Second", Rules: []fastadmit.Rule{fastadmit.Any()}},
			controllerruntime.Webhooks{Mutating: second}),
	}
	ignore := fastadmit.Enabled{}
	ignore.Settings.FailurePolicy = "Ignore"
	chain, err := fastadmit.NewChain(table, map[string]fastadmit.Enabled{"First": {}, "Second": ignore}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := string(admissiontest.Answer(t, chain, fastadmit.Mutate, admissiontest.Body(codec.Create, "v1/pods", `{}`)))
	if seen != `{"a":1}` || !strings.Contains(got, `"patch":[{"op":"add","path":"/a","value":1}]`) || strings.Contains(got, "warnings") {
		t.Errorf("the second plugin saw %s, the answer is %s", seen, got)
	}
}

func TestRefuses(t *testing.T) {
	f := func(webhooks controllerruntime.Webhooks, config, want string) {
		t.Helper()
		_, err := admissiontest.NewChain(controllerruntime.Plugin(fastadmit.Plugin{Name: "P"}, webhooks), config)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	bad := responds(admission.Allowed(""))
	bad.WithContextFunc = func(ctx context.Context, _ *http.Request) context.Context { return ctx }
	f(controllerruntime.Webhooks{Mutating: bad}, "", "mutating webhook: got a WithContextFunc")
	f(controllerruntime.Webhooks{Validating: &admission.Webhook{}}, "", "validating webhook: got no Handler")
	f(controllerruntime.Webhooks{}, "", "got no webhook")
	f(controllerruntime.Webhooks{Validating: responds(admission.Allowed(""))}, "a: b", "got a configuration file")
}
