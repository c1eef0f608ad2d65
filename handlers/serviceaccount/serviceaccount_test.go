package serviceaccount

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/admission/podspec"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// recorded returns the service accounts of the recorded pods.
func recorded() []runtime.Object {
	return []runtime.Object{account("shop", "web"), account("shop", "default"), account("kube-system", "default")}
}

var (
	tokenMounts  = regexp.MustCompile(`,?\{"name":"kube-api-access-[a-z0-9]{5}","readOnly":true,"mountPath":"[^"]*"\}`)
	tokenVolumes = regexp.MustCompile(`,?\{"name":"kube-api-access-[a-z0-9]{5}","projected":\{.*?\],"defaultMode":420\}\}`)
	accountNames = regexp.MustCompile(`"serviceAccount(Name)?":"default",`)
)

// asSent removes what kube-apiserver's own plugin added to a recorded review.
func asSent(body []byte) []byte {
	body = accountNames.ReplaceAll(tokenVolumes.ReplaceAll(tokenMounts.ReplaceAll(body, nil), nil), nil)
	for _, list := range []string{"volumeMounts", "volumes"} {
		body = []byte(strings.ReplaceAll(string(body), fmt.Sprintf("%q:[],", list), ""))
	}
	return body
}

func TestMutates(t *testing.T) {
	sent := asSent(corpus.MustRead("pods-create-v1-2.json"))
	if !json.Valid(sent) || strings.Contains(string(sent), "kube-api-access") || strings.Contains(string(sent), `"serviceAccount`) {
		t.Fatalf("got %s", sent)
	}
	admissiontest.MutatesChain(t, admissiontest.MustChain(t, Plugin(), "", recorded()...), asSent,
		"/spec/serviceAccountName", "/spec/serviceAccount", "/spec/volumes", "/spec/volumes/*",
		"/spec/containers/*/volumeMounts", "/spec/containers/*/volumeMounts/*",
		"/spec/initContainers/*/volumeMounts", "/spec/initContainers/*/volumeMounts/*")
}

var suffix = regexp.MustCompile(`kube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}"`)

// admitted returns the operations of the patch for a new Pod with this spec. The random
// suffix of its volume is replaced by a fixed one.
func admitted(t *testing.T, chain *admission.Chain, spec string) string {
	t.Helper()
	answer := admissiontest.Answer(t, chain, admission.Mutate,
		admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{},"spec":`+spec+`}`))
	var response struct {
		Allowed bool
		Patch   []struct {
			Op, Path string
			Value    json.RawMessage
		}
	}
	if err := json.Unmarshal(answer, &response); err != nil || !response.Allowed {
		t.Fatalf("%s: got %s (%v)", spec, answer, err)
	}
	var operations []string
	for _, o := range response.Patch {
		operations = append(operations, fmt.Sprintf("%s %s %s", o.Op, o.Path, o.Value))
	}
	all := strings.Join(operations, "\n")
	names := slices.Compact(suffix.FindAllString(all, -1))
	if len(names) > 1 {
		t.Errorf("%s: got %q, want one name", spec, names)
	}
	all = suffix.ReplaceAllString(all, `kube-api-access-RANDM"`)
	all = strings.ReplaceAll(all, `{"name":"kube-api-access-RANDM"`+tokenSources, "VOLUME")
	return strings.ReplaceAll(all, `{"name":"kube-api-access-RANDM","readOnly":true,"mountPath":"`+tokenPath+`"}`, "MOUNT")
}

func TestAdmit(t *testing.T) {
	silent, pulling := account("namespace", "silent"), account("namespace", "pulling")
	silent.AutomountServiceAccountToken = new(false)
	pulling.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "a"}, {}, {Name: `"`}}
	chain := admissiontest.MustChain(t, Plugin(), "", account("namespace", "default"), silent, pulling, account("other", "here"))
	f := func(spec string, want ...string) {
		t.Helper()
		if got := admitted(t, chain, spec); got != strings.Join(want, "\n") {
			t.Errorf("%s\ngot  %s\nwant %s", spec, got, strings.Join(want, "\n"))
		}
	}
	const (
		name  = `add /spec/serviceAccountName "default"`
		alias = `add /spec/serviceAccount "default"`
	)
	f(`{"containers":[{}]}`, `add /spec/containers/0/volumeMounts [MOUNT]`, name, alias, `add /spec/volumes [VOLUME]`)
	f(`{"containers":[]}`, name, alias)
	f(`{"automountServiceAccountToken":false,"containers":[{}]}`, name, alias)
	f(`{"serviceAccountName":"default","containers":[{}]}`,
		`add /spec/containers/0/volumeMounts [MOUNT]`, `add /spec/volumes [VOLUME]`)
	f(`{"serviceAccount":"silent","containers":[{}]}`) // the deprecated field
	f(`{"serviceAccountName":"silent","serviceAccount":"pulling","containers":[{}]}`)
	f(`{"serviceAccountName":"silent","containers":[{}],"automountServiceAccountToken":true}`,
		`add /spec/containers/0/volumeMounts [MOUNT]`, `add /spec/volumes [VOLUME]`)
	f(`{"serviceAccountName":"silent","containers":[{}],"automountServiceAccountToken":null}`)

	// Only containers that mount nothing at the token's path get the token.
	const silentAnd = `{"serviceAccountName":"silent","automountServiceAccountToken":true,`
	f(silentAnd+`"initContainers":[{"volumeMounts":[{"name":"a","mountPath":"/a"}]},{"restartPolicy":"Always"}],
		"containers":[{"volumeMounts":[{"mountPath":"`+tokenPath+`"}]},{"volumeMounts":[{"mountPath":"`+tokenPath+`/"}]}],
		"ephemeralContainers":[{}],"volumes":[{"name":"a"}]}`,
		`add /spec/initContainers/0/volumeMounts/1 MOUNT`, `add /spec/initContainers/1/volumeMounts [MOUNT]`,
		`add /spec/containers/1/volumeMounts/1 MOUNT`, `add /spec/volumes/1 VOLUME`)
	f(silentAnd + `"containers":[{"volumeMounts":[{"mountPath":"` + tokenPath + `"}]}]}`)
	f(silentAnd+`"containers":[{},null,1]}`, `add /spec/containers/0/volumeMounts [MOUNT]`, `add /spec/volumes [VOLUME]`)

	// A volume whose name has the plugin's prefix is used as the token's volume.
	f(silentAnd+`"volumes":[{"name":"kube-api-access"},{"name":"kube-api-access-\"",`+
		`"emptyDir":{}},{"name":"kube-api-access-b"}],"containers":[{}]}`,
		`add /spec/containers/0/volumeMounts [{"name":"kube-api-access-\"","readOnly":true,"mountPath":"`+tokenPath+`"}]`)

	const pullingAnd = `{"serviceAccountName":"pulling","automountServiceAccountToken":false`
	f(pullingAnd+`}`, `add /spec/imagePullSecrets [{"name":"a"},{},{"name":"\""}]`)
	f(pullingAnd+`,"imagePullSecrets":[]}`, `replace /spec/imagePullSecrets [{"name":"a"},{},{"name":"\""}]`)
	f(pullingAnd + `,"imagePullSecrets":[{"name":"own"}]}`)
	f(`null`, `replace /spec {"serviceAccountName":"default","serviceAccount":"default"}`) // no API server sends this
}

// TestOddPods has pods that no API server sends: wrong values are read as missing, and the
// plugin fails if it would have to change them.
func TestOddPods(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", account("namespace", "default"))
	f := func(pod string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, admissiontest.Body(codec.Create, "v1/pods", pod))
	}
	f(`{}`, admission.OutcomePatched)
	f(`{"metadata":[],"spec":{"serviceAccountName":1,"automountServiceAccountToken":"false","containers":{},"initContainers":"a"}}`,
		admission.OutcomePatched)
	f(`{"metadata":{"annotations":"a"},"spec":{"containers":[null,1,"a",[]],"imagePullSecrets":{}}}`, admission.OutcomePatched)
	f(`{"spec":{"serviceAccountName":"default","containers":[{"volumeMounts":null}],"volumes":null}}`, admission.OutcomePatched)
	f(`{"spec":{"serviceAccountName":"default","volumes":[null,1,{"name":null}],"containers":[]}}`, admission.OutcomeAllowed)
	f(`null`, admission.OutcomeErrored)
	f(`{"spec":[]}`, admission.OutcomeErrored)
	f(`{"spec":{"containers":[{"volumeMounts":{}}]}}`, admission.OutcomeErrored)
	f(`{"spec":{"containers":[{}],"volumes":"a"}}`, admission.OutcomeErrored)
}

// TestNames checks that the names of volumes differ.
func TestNames(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", account("namespace", "default"))
	names := make(map[string]bool)
	for range 100 {
		names[suffix.FindString(string(admissiontest.Answer(t, chain, admission.Mutate,
			admissiontest.Body(codec.Create, "v1/pods", `{"spec":{"containers":[{}]}}`))))] = true
	}
	if len(names) < 90 || names[""] {
		t.Errorf("got %d names of 100", len(names))
	}
}

// denial returns the message and code of the denial of a Pod with these annotations and this
// spec, both empty if it is allowed.
func denial(t *testing.T, chain *admission.Chain, phase admission.Phase, annotations, spec string) string {
	t.Helper()
	body := admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"pod","annotations":`+annotations+`},"spec":`+spec+`}`)
	return denialOf(t, chain, phase, body)
}

func denialOf(t *testing.T, chain *admission.Chain, phase admission.Phase, body []byte) string {
	t.Helper()
	var got struct {
		Status struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(admissiontest.Answer(t, chain, phase, body), &got); err != nil {
		t.Fatal(err)
	}
	if got.Status.Code == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", got.Status.Code, strings.TrimPrefix(got.Status.Message, `pods "name" is forbidden: `))
}

func TestMirror(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", account("namespace", "default"))
	f := func(spec, want string) {
		t.Helper()
		for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
			if got := denial(t, chain, phase, `{"kubernetes.io/config.mirror":""}`, spec); got != want {
				t.Errorf("%s %s: got %q, want %q", phase, spec, got, want)
			}
		}
	}
	const (
		secrets = "403 a mirror pod may not reference secrets"
		token   = "403 a mirror pod may not use ServiceAccountToken volume projections"
	)
	f(`{"containers":[{}]}`, "")
	f(`null`, "")
	f(`{"serviceAccountName":"default"}`, "403 a mirror pod may not reference service accounts")
	f(`{"serviceAccount":"default"}`, "403 a mirror pod may not reference service accounts")
	f(`{"imagePullSecrets":[{},{"name":"s"}]}`, secrets)
	f(`{"imagePullSecrets":[{},{"name":""}]}`, "")
	for _, list := range podspec.ContainerLists {
		f(`{"`+list+`":[{},{"env":[{},{"valueFrom":{"secretKeyRef":{"name":"s"}}}]}]}`, secrets)
		f(`{"`+list+`":[{},{"env":[{},{"valueFrom":{"secretKeyRef":{"key":"s"},"configMapKeyRef":{"name":"c"}}}]}]}`, "")
		f(`{"`+list+`":[{},{"envFrom":[{},{"secretRef":{"name":"s"}}]}]}`, secrets)
		f(`{"`+list+`":[{},{"envFrom":[{},{"secretRef":{},"configMapRef":{"name":"c"}}]}]}`, "")
	}
	for _, source := range []string{
		`"azureFile":{"secretName":"s"}`, `"cephfs":{"secretRef":{"name":"s"}}`, `"cinder":{"secretRef":{"name":"s"}}`,
		`"flexVolume":{"secretRef":{"name":"s"}}`, `"projected":{"sources":[{},{"secret":{"name":"s"}}]}`,
		`"rbd":{"secretRef":{"name":"s"}}`, `"secret":{"secretName":"s"}`, `"scaleIO":{"secretRef":{"name":"s"}}`,
		`"iscsi":{"secretRef":{"name":"s"}}`, `"storageos":{"secretRef":{"name":"s"}}`, `"csi":{"nodePublishSecretRef":{"name":"s"}}`,
	} {
		f(`{"volumes":[{},{`+source+`}]}`, secrets)
		f(`{"volumes":[{`+strings.ReplaceAll(source, `"s"`, `""`)+`}]}`, "")
		f(`{"volumes":[{"azureFile":{},`+source+`}]}`, "") // only the first source counts
	}
	f(`{"volumes":[{"projected":{"sources":[{},{"serviceAccountToken":{}}]}}]}`, token)
	f(`{"volumes":[{"projected":{"sources":[{"serviceAccountToken":null}]},"secret":{"secretName":"s"}}]}`, "")
}

func TestLimits(t *testing.T) {
	limited := account("namespace", "limited")
	limited.Annotations = map[string]string{cluster.EnforceMountableSecretsAnnotation: "T"}
	limited.Secrets = []corev1.ObjectReference{{Name: "mine"}}
	limited.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	free := account("namespace", "free")
	free.Annotations = map[string]string{cluster.EnforceMountableSecretsAnnotation: "yes"}
	off := account("namespace", "off")
	off.Annotations = map[string]string{cluster.EnforceMountableSecretsAnnotation: "false"}
	chain := admissiontest.MustChain(t, Plugin(), "", limited, free, off)
	f := func(spec, want string) {
		t.Helper()
		for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
			if got := denial(t, chain, phase, "null", `{"serviceAccountName":"limited",`+spec+`}`); got != want {
				t.Errorf("%s %s: got %q, want %q", phase, spec, got, want)
			}
			for _, name := range []string{"free", "off"} {
				if got := denial(t, chain, phase, "null", `{"serviceAccountName":"`+name+`",`+spec+`}`); got != "" {
					t.Errorf("%s %s: got %q, want nothing limited", phase, spec, got)
				}
			}
		}
	}
	const because = ` is not allowed because service account limited does not reference that `
	f(`"containers":[{}]`, "")
	f(`"volumes":[{"secret":{"secretName":"mine"}}]`, "")
	f(`"volumes":[{},{"secret":{"secretName":"s"}}]`, `403 volume with secret.secretName="s"`+because+`secret`)
	f(`"volumes":[{"secret":{}}]`, `403 volume with secret.secretName=""`+because+`secret`)
	f(`"volumes":[{"secret":null},{"projected":{"sources":[{"secret":{"name":"s"}}]}},{"csi":{"nodePublishSecretRef":{"name":"s"}}}]`, "")
	for list, called := range map[string]string{"initContainers": "init container", "containers": "container"} {
		f(`"`+list+`":[{"name":"c","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"s"}}}]}]`,
			`403 `+called+` c with envVar E referencing secret.secretName="s"`+because+`secret`)
		f(`"`+list+`":[{"name":"c","envFrom":[{"secretRef":{"name":"s"}}]}]`,
			`403 `+called+` c with envFrom referencing secret.secretName="s"`+because+`secret`)
		f(`"`+list+`":[{"env":[{},{"valueFrom":{"secretKeyRef":{"name":"mine"}}}],"envFrom":[{},{"secretRef":{"name":"mine"}}]}]`, "")
	}
	f(`"imagePullSecrets":[{"name":"pull"},{"name":"s"}]`, `403 imagePullSecrets[1].name="s"`+because+`imagePullSecret`)
	f(`"imagePullSecrets":[{"name":"pull"}]`, "")
	f(`"ephemeralContainers":[{"name":"c","envFrom":[{"secretRef":{"name":"s"}}]}]`, "")

	// The message names the first one in upstream's order.
	f(`"imagePullSecrets":[{"name":"s"}],"containers":[{"name":"c","envFrom":[{"secretRef":{"name":"s"}}]}]`,
		`403 container c with envFrom referencing secret.secretName="s"`+because+`secret`)
	f(`"containers":[{"name":"c","envFrom":[{"secretRef":{"name":"s"}}],"env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"s"}}}]}],
		"initContainers":[{"name":"i","envFrom":[{"secretRef":{"name":"s"}}],
			"env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"s"}}}]}]`,
		`403 init container i with envVar E referencing secret.secretName="s"`+because+`secret`)
}

func TestEphemeralContainers(t *testing.T) {
	limited := account("namespace", "limited")
	limited.Annotations = map[string]string{cluster.EnforceMountableSecretsAnnotation: "true"}
	limited.Secrets = []corev1.ObjectReference{{Name: "mine"}}
	chain := admissiontest.MustChain(t, Plugin(), "", limited, account("namespace", "free"))
	f := func(spec, want string) {
		t.Helper()
		body := admissiontest.UpdateBody("v1/pods",
			`{"metadata":{"name":"pod","annotations":{"kubernetes.io/config.mirror":""}},"spec":`+spec+`}`, `{}`)
		body = []byte(strings.Replace(string(body), `"name":"name"`, `"subResource":"ephemeralcontainers","name":"name"`, 1))
		if got := denialOf(t, chain, admission.Validate, body); got != want {
			t.Errorf("%s: got %q, want %q", spec, got, want)
		}
		if got := denialOf(t, chain, admission.Mutate, body); got != "" {
			t.Errorf("mutate %s: got %q", spec, got)
		}
	}
	const because = ` is not allowed because service account limited does not reference that secret`
	f(`{}`, "403 no service account specified for pod namespace/pod")
	f(`{"serviceAccountName":"none"}`, `403 error looking up service account namespace/none: serviceaccount "none" not found`)
	f(`{"serviceAccountName":"free","ephemeralContainers":[{"envFrom":[{"secretRef":{"name":"s"}}]}]}`, "")
	f(`{"serviceAccountName":"limited","ephemeralContainers":[{"envFrom":[{"secretRef":{"name":"mine"}}]}]}`, "")
	f(`{"serviceAccountName":"limited","ephemeralContainers":[{"name":"c","envFrom":[{"secretRef":{"name":"s"}}]}]}`,
		`500 ephemeral container c with envFrom referencing secret.secretName="s"`+because)
	f(`{"serviceAccountName":"limited","ephemeralContainers":[{"name":"c","env":[{"name":"E","valueFrom":{"secretKeyRef":{}}}]}]}`,
		`500 ephemeral container c with envVar E referencing secret.secretName=""`+because)
	f(`{"serviceAccountName":"limited","containers":[{"envFrom":[{"secretRef":{"name":"s"}}]}],"volumes":[{"secret":{}}]}`, "")
}

// TestWaits checks how long the plugin waits for the default account of a new namespace,
// which a controller creates.
func TestWaits(t *testing.T) {
	state, err := cluster.New(cluster.Options{Objects: []runtime.Object{account("other", "default")}})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := Plugin().New(admission.Setup{Cluster: state.View(Plugin().Needs...)})
	if err != nil {
		t.Fatal(err)
	}
	f := func(name string, timeout, least, most time.Duration, denied bool) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			start := time.Now()
			result := admitPod(t, ctx, handler, name)
			if took := time.Since(start); took < least || took > most {
				t.Errorf("%s: took %s, want %s to %s", name, took, least, most)
			}
			if (result.Denial != nil) != denied || (result.Err != nil) == denied {
				t.Errorf("%s: got %+v, want it denied: %v", name, result, denied)
			}
		})
	}
	f("default", time.Minute, 9*intervalMin, 9*intervalMax, true)
	f("other", time.Minute, 0, 0, true)
	f("default", 500*time.Millisecond, 500*time.Millisecond, 500*time.Millisecond, false)
}

// admitPod admits a new Pod with this account.
func admitPod(t *testing.T, ctx context.Context, handler admission.Handler, account string) admission.Result {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(admissiontest.Body(codec.Create, "v1/pods",
		`{"spec":{"containers":[{}],"serviceAccountName":"`+account+`"}}`)); err != nil {
		t.Fatal(err)
	}
	result := handler.Admit(ctx, review)
	got := string(review.Object.Root().AppendJSON(nil))
	if allowed := result == (admission.Result{}); allowed != strings.Contains(got, tokenPath) {
		t.Errorf("allowed: %v, with %s", allowed, got)
	}
	return result
}

// TestLive asks an API server for accounts that are not in the cache.
func TestLive(t *testing.T) {
	const missing, broken = http.StatusNotFound, http.StatusInternalServerError
	f := func(name, want string, failures ...int) {
		t.Helper()
		var asked atomic.Int64
		handler := admissiontest.LiveHandler(t, Plugin(), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/namespaces/namespace/serviceaccounts/"+name {
				t.Errorf("asked for %s", r.URL)
			}
			if n := int(asked.Add(1)); n <= len(failures) {
				admissiontest.Failure(w, failures[n-1], map[int]string{missing: "NotFound", broken: "InternalError"}[failures[n-1]])
				return
			}
			fmt.Fprintf(w, `{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"namespace":"namespace","name":%q}}`, name)
		})
		result := admitPod(t, t.Context(), handler, name)
		got, requests := "", len(failures)
		switch {
		case result.Denial != nil:
			got = "denied: " + result.Denial.Message
		case result.Err != nil:
			got = "failed: " + result.Err.Error()
		default:
			requests++
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" || int(asked.Load()) != requests {
			t.Errorf("%s after %v: got %q after %d requests, want %q after %d", name, failures, got, asked.Load(), want, requests)
		}
	}
	f("web", "")
	f("web", `denied: pods "name" is forbidden: error looking up service account namespace/web: serviceaccount "web" not found`, missing)
	f("default", "", missing, missing)
	f("default", "failed: error looking up service account namespace/default: cluster state: cannot get serviceaccounts", missing, broken)
	f("default", `denied: pods "name" is forbidden: error looking up service account namespace/default: serviceaccount `+
		`"default" not found`,
		slices.Repeat([]int{missing}, attemptsForDefault)...)
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", recorded()...)
	create := corpus.MustRead("pods-create-v1-1.json")
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, asSent(create))
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, asSent(corpus.MustRead("pods-create-v1-2.json")))
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, create)
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, create)
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed,
		corpus.MustRead("pods-ephemeralcontainers-update-v1-1.json"))
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, corpus.MustRead("pods-update-v1-1.json"))
}

func BenchmarkMutate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", recorded()...)
	admissiontest.Benchmark(b, chain, admission.Mutate, admission.OutcomePatched, asSent(corpus.MustRead("pods-create-v1-1.json")))
}

func BenchmarkMutateAgain(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", recorded()...)
	admissiontest.Benchmark(b, chain, admission.Mutate, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
}

func BenchmarkValidate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", recorded()...)
	admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
}
