package podpreset

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

const pods = "v1/pods"

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// preset returns a preset with this spec in the namespace.
func preset(t testing.TB, namespace, name, spec string) *PodPreset {
	t.Helper()
	p := new(PodPreset)
	if err := p.UnmarshalJSON([]byte(`{"spec":` + spec + `}`)); err != nil {
		t.Fatal(err)
	}
	p.TypeMeta = metav1.TypeMeta{APIVersion: "settings.k8s.io/v1alpha1", Kind: "PodPreset"}
	p.Namespace, p.Name, p.ResourceVersion = namespace, name, "7"
	return p
}

func TestMutates(t *testing.T) {
	spec := `{"env":[{"name":"DB","value":"x"}],"envFrom":[{"configMapRef":{"name":"m"}}],"volumes":[{"name":"v"}],` +
		`"volumeMounts":[{"name":"v","mountPath":"/v"}]}`
	chain := admissiontest.MustChain(t, Plugin(), "", preset(t, "shop", "a", spec))
	admissiontest.MutatesChain(t, chain, nil, "/metadata/annotations", "/metadata/annotations/*", "/spec/volumes", "/spec/volumes/*",
		"/spec/containers/*/*", "/spec/containers/*/*/*", "/spec/initContainers/*/*", "/spec/initContainers/*/*/*")
}

// TestContainer has upstream's cases of a container and a preset. The want is the merged
// container, "" if they conflict (admission_test.go TestMergeEnv, TestMergeEnvFrom,
// TestMergeVolumeMounts).
func TestContainer(t *testing.T) {
	f := func(container, spec, want string) {
		t.Helper()
		chain := admissiontest.MustChain(t, Plugin(), "", preset(t, "namespace", "a", spec))
		given := `{"spec":{"containers":[` + container + `],"initContainers":[` + container + `]}}`
		patched := given
		if want != "" {
			patched = `{"metadata":{"annotations":{"podpreset.admission.kubernetes.io/podpreset-a":"7"}},"spec":{"containers":[` +
				want + `],"initContainers":[` + want + `]}}`
		}
		admissiontest.CheckAdmit(t, chain, pods, given, patched)
	}
	const two = `{"env":[{"name":"abc","value":"value2"},{"name":"ABC","value":"value3"}]}`
	f(`{}`, two, two)
	f(`{"env":[{"name":"abcd","value":"value2"},{"name":"hello","value":"value3"}]}`, two,
		`{"env":[{"name":"abcd","value":"value2"},{"name":"hello","value":"value3"},{"name":"abc",`+
			`"value":"value2"},{"name":"ABC","value":"value3"}]}`)
	f(`{"env":[{"name":"abc","value":"value3"}]}`, two, "")
	f(`{"env":[{"name":"abc","value":"value2"},{"name":"hello","value":"value3"}]}`, two,
		`{"env":[{"name":"abc","value":"value2"},{"name":"hello","value":"value3"},{"name":"ABC","value":"value3"}]}`)
	f(`{"env":[{"name":"abc","value":"other"},{"name":"abc","value":"value2"}]}`, `{"env":[{"name":"abc","value":"value2"}]}`,
		`{"env":[{"name":"abc","value":"other"},{"name":"abc","value":"value2"}]}`) // the last one counts
	const key = `{"env":[{"name":"a","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}`
	f(`{}`, key, key)
	f(`{"env":[{"name":"a","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"spec.nodeName"}}}]}`,
		`{"env":[{"name":"a","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}},{"name":"b"}]}`,
		`{"env":[{"name":"a","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"spec.nodeName"}}},{"name":"b"}]}`)

	const from = `{"configMapRef":{"name":"abc"}},{"prefix":"pre_","configMapRef":{"name":"abc"}}`
	f(`{}`, `{"envFrom":[`+from+`]}`, `{"envFrom":[`+from+`]}`)
	f(`{"envFrom":[{"configMapRef":{"name":"thing"}}]}`, `{"envFrom":[`+from+`]}`,
		`{"envFrom":[{"configMapRef":{"name":"thing"}},`+from+`]}`)
	f(`{"envFrom":[`+from+`]}`, `{"envFrom":[`+from+`,{"secretRef":{"name":"abc"}}]}`,
		`{"envFrom":[`+from+`,{"secretRef":{"name":"abc"}}]}`)
	f(`{}`, `{"envFrom":[{"secretRef":{"name":"s"}},{"secretRef":{"name":"s"}}]}`,
		`{"envFrom":[{"secretRef":{"name":"s"}},{"secretRef":{"name":"s"}}]}`)
	f(`{"envFrom":[{"secretRef":{"name":"s"}}]}`, `{"envFrom":[{"secretRef":{"name":"t"}}]}`,
		`{"envFrom":[{"secretRef":{"name":"s"}},{"secretRef":{"name":"t"}}]}`)
	f(`{"envFrom":[{"configMapRef":{"name":"abc","optional":true}}]}`, `{"envFrom":[`+from+`]}`, "") // in-tree loses all

	const opt, etc = `{"name":"simply-mounted-volume","mountPath":"/opt/"}`, `{"name":"etc-volume","mountPath":"/etc/"}`
	f(`{}`, `{"volumeMounts":[`+opt+`]}`, `{"volumeMounts":[`+opt+`]}`)
	f(`{"volumeMounts":[`+etc+`]}`, `{"volumeMounts":[`+opt+`]}`, `{"volumeMounts":[`+etc+`,`+opt+`]}`)
	f(`{"volumeMounts":[`+etc+`]}`, `{"volumeMounts":[`+opt+`,{"name":"etc-volume","mountPath":"/things/"}]}`, "")
	f(`{"volumeMounts":[`+etc+`]}`, `{"volumeMounts":[`+opt+`,{"name":"things-volume","mountPath":"/etc/"}]}`, "")
	f(`{"volumeMounts":[`+etc+`]}`, `{"volumeMounts":[`+opt+`,`+etc+`]}`, `{"volumeMounts":[`+etc+`,`+opt+`]}`)
	f(`{}`, `{"volumeMounts":[`+opt+`,{"name":"other","mountPath":"/opt/"}]}`, "")
	f(`{}`, `{"volumeMounts":[`+opt+`,{"name":"simply-mounted-volume","mountPath":"/etc/"}]}`, "")
	f(`{"volumeMounts":[`+etc+`,{"name":"etc-volume","mountPath":"/b/"}]}`, `{"volumeMounts":[`+etc+`]}`, "") // the last one counts
}

// TestVolumes has upstream's cases of volumes (TestMergeVolumes), and the defaults of each
// kind of volume: a preset without defaults does not conflict with a pod that has them.
func TestVolumes(t *testing.T) {
	f := func(volumes, spec, want string) {
		t.Helper()
		chain := admissiontest.MustChain(t, Plugin(), "", preset(t, "namespace", "a", `{"volumes":[`+spec+`]}`))
		given := `{"metadata":{"annotations":{"a":"b"}},"spec":{"volumes":[` + volumes + `]}}`
		patched := given
		if want != "" {
			patched = `{"metadata":{"annotations":{"a":"b","podpreset.admission.kubernetes.io/podpreset-a":"7"}},"spec":{"volumes":[` +
				want + `]}}`
		}
		admissiontest.CheckAdmit(t, chain, pods, given, patched)
	}
	const vol, vol3 = `{"name":"vol","emptyDir":{}}`, `{"name":"vol3","emptyDir":{}}`
	f(vol3, vol, vol3+","+vol)
	f(vol3, vol3+","+vol, vol3+","+vol)
	f(vol3, `{"name":"vol3","hostPath":{"path":"/etc/apparmor.d"}},`+vol, "")
	const set = `{"name":"v","hostPath":{"path":"/a","type":"Directory"}},{"name":"w","iscsi":{"targetPortal":"p","iqn":"q",` +
		`"lun":1,"iscsiInterface":"i"}}`
	f(set, set, set) // sets the fields that have defaults
	for _, volume := range [][2]string{
		{`"emptyDir":{}`, ``},
		{`"hostPath":{"path":"/a","type":""}`, `"hostPath":{"path":"/a"}`},
		{`"secret":{"secretName":"s","defaultMode":420}`, `"secret":{"secretName":"s"}`},
		{`"configMap":{"name":"m","defaultMode":420}`, `"configMap":{"name":"m"}`},
		{
			`"downwardAPI":{"items":[{"path":"a","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}],` +
				`"defaultMode":420}`,
			`"downwardAPI":{"items":[{"path":"a","fieldRef":{"fieldPath":"metadata.name"}}]}`,
		},
		{
			`"projected":{"defaultMode":420,"sources":[{"serviceAccountToken":{"path":"t",` +
				`"expirationSeconds":3600}},{"downwardAPI":{"items":[{"path":"a","fieldRef":{"apiVersion":"v1",` +
				`"fieldPath":"metadata.name"}}]}}]}`,
			`"projected":{"sources":[{"serviceAccountToken":{"path":"t"}},{"downwardAPI":{"items":[{"path":"a",` +
				`"fieldRef":{"fieldPath":"metadata.name"}}]}}]}`,
		},
		{
			`"ephemeral":{"volumeClaimTemplate":{"metadata":{},"spec":{"resources":{},"volumeMode":"Filesystem"}}}`,
			`"ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{}}}}`,
		},
		{
			`"iscsi":{"targetPortal":"p","iqn":"q","lun":1,"iscsiInterface":"default"}`,
			`"iscsi":{"targetPortal":"p","iqn":"q","lun":1}`,
		},
		{`"ephemeral":{}`, `"ephemeral":{}`},
		{
			`"rbd":{"monitors":["m"],"image":"i","pool":"rbd","user":"admin","keyring":"/etc/ceph/keyring"}`,
			`"rbd":{"monitors":["m"],"image":"i"}`,
		},
		{
			`"azureDisk":{"diskName":"d","diskURI":"u","cachingMode":"ReadWrite","fsType":"ext4","readOnly":false,` +
				`"kind":"Shared"}`,
			`"azureDisk":{"diskName":"d","diskURI":"u"}`,
		},
		{
			`"scaleIO":{"gateway":"g","system":"s","secretRef":{"name":"n"},"storageMode":"ThinProvisioned",` +
				`"fsType":"xfs"}`,
			`"scaleIO":{"gateway":"g","system":"s","secretRef":{"name":"n"}}`,
		},
	} {
		given := `{"name":"v",` + volume[0] + `}`
		f(given, strings.TrimSuffix(`{"name":"v",`+volume[1], ",")+`}`, given)
	}
}

// TestSelects checks which pods a preset applies to.
func TestSelects(t *testing.T) {
	const selector = `"selector":{"matchExpressions":[{"key":"security","operator":"In","values":["S2"]}]}`
	env := func(selector string) string { return `{` + selector + `"env":[{"name":"A"}]}` }
	chain := admissiontest.MustChain(t, Plugin(), "", preset(t, "namespace", "a", env(selector+",")), preset(t, "elsewhere", "b", env("")))
	f := func(body []byte, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, body)
	}
	create := func(metadata string) []byte {
		return admissiontest.Body(codec.Create, pods, `{"metadata":`+metadata+`,"spec":{"containers":[{"name":"c"}]}}`)
	}
	f(create(`{"labels":{"security":"S2"}}`), admission.OutcomePatched)
	f(create(`{"labels":{"security":"S2"},"annotations":{"podpreset.admission.kubernetes.io/exclude":"True"}}`), admission.OutcomePatched)
	f(create(`{"labels":{"security":"S2"},"annotations":{"podpreset.admission.kubernetes.io/exclude":"true"}}`), admission.OutcomeAllowed)
	f(create(`{"labels":{"security":"S2"},"annotations":{"kubernetes.io/config.mirror":""}}`), admission.OutcomeAllowed)
	f(create(`{"labels":{"security":"S3"}}`), admission.OutcomeAllowed)
	f(admissiontest.Body(codec.Create, pods, `{"metadata":{"labels":{"security":"S3"}},"spec":{"containers":{}}}`),
		admission.OutcomeAllowed) // not decoded
	f(create(`{"labels":null}`), admission.OutcomeAllowed)
	f(create(`null`), admission.OutcomeAllowed)
	f(admissiontest.UpdateBody(pods, `{"metadata":{"labels":{"security":"S2"}}}`, `{}`), admission.OutcomeAllowed)
	f([]byte(strings.Replace(string(create(`{"labels":{"security":"S2"}}`)), `"namespace":"namespace"`, `"namespace":""`, 1)),
		admission.OutcomeAllowed)
	f(admissiontest.Body(codec.Create, pods, `null`), admission.OutcomeAllowed)
	f(admissiontest.Body(codec.Create, pods, `{"metadata":{"labels":{"security":"S2"}},"spec":{"containers":{}}}`),
		admission.OutcomeDenied) // not a Pod
}

// TestInvalid has invalid presets that no CustomResourceDefinition rejects: they are not
// applied, and others are.
func TestInvalid(t *testing.T) {
	const good = `{"env":[{"name":"A"}]}`
	f := func(spec string) {
		t.Helper()
		chain := admissiontest.MustChain(t, Plugin(), "", preset(t, "namespace", "a", spec), preset(t, "namespace", "b", good))
		answer := string(admissiontest.Answer(t, chain, admission.Mutate,
			admissiontest.Body(codec.Create, pods, `{"spec":{"containers":[{"name":"c"}]}}`)))
		if !strings.Contains(answer, "PodPreset a is ignored: ") || !strings.Contains(answer, "podpreset-b") ||
			strings.Contains(answer, "podpreset-a") {
			t.Errorf("%s: got %s", spec, answer)
		}
	}
	f(`{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]},"env":[{"name":"B"}]}`)
	f(`{"env":"B"}`)
	f(`{"env":"B","selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}`)
	f(`[]`)
	if fault := preset(t, "namespace", "a",
		`{"env":"B","selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}`).fault; !strings.Contains(fault.Error(),
		"cannot unmarshal string") {
		t.Errorf("got %v, want what cannot be decoded", fault)
	}
	if err := new(PodPreset).UnmarshalJSON([]byte(`{"metadata":[]}`)); err == nil {
		t.Error("got no error, want one of the metadata")
	}
	chain := admissiontest.MustChain(t, Plugin(), "", preset(t, "namespace", "a", `null`)) // selects all pods and adds nothing
	admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomePatched, admissiontest.Body(codec.Create, pods, `{}`))
}

// TestFields has presets in files with only one of the fields that a preset must have.
func TestFields(t *testing.T) {
	for _, field := range []string{"env", "envFrom", "volumes", "volumeMounts", "selector"} {
		p := preset(t, "shop", "a", `{"`+field+`":`+map[bool]string{true: "{}", false: "[]"}[field == "selector"]+`}`)
		if err := p.check(); (err != nil) != (field == "selector") {
			t.Errorf("%s: got error %v, want one for the selector alone", field, err)
		}
	}
}

// TestCopy changes a deep copy.
func TestCopy(t *testing.T) {
	p := preset(t, "shop", "a", `{"env":[{"name":"A"}]}`)
	p.Labels = map[string]string{"k": "v"}
	p.DeepCopyObject().(*PodPreset).Labels["k"] = "changed"
	if p.Labels["k"] != "v" {
		t.Errorf("got labels %v after a copy was changed, want them as they were", p.Labels)
	}
}

// TestAddedMax has presets that add exactly the maximum, and more.
func TestAddedMax(t *testing.T) {
	const containers = 4
	f := func(more int, want admission.Outcome) {
		t.Helper()
		p := preset(t, "namespace", "a", `{"env":[{"name":"A","value":"x"}]}`)
		value := strings.Repeat("x", addedMax/containers-p.bytes+1+more)
		p = preset(t, "namespace", "a", `{"env":[{"name":"A","value":"`+value+`"}]}`)
		chain := admissiontest.MustChain(t, Plugin(), "", p)
		body := admissiontest.Body(codec.Create, pods, `{"spec":{"initContainers":[{}],"containers":[{},{},{}]}}`)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, body)
	}
	f(-1, admission.OutcomePatched)
	f(0, admission.OutcomePatched)
	f(1, admission.OutcomeDenied)
	size := func(containers, bytes int, want string) {
		t.Helper()
		review := new(codec.Review)
		if err := review.Decode(admissiontest.Body(codec.Create, pods,
			`{"spec":{"containers":[{}`+strings.Repeat(`,{}`, containers-1)+`]}}`)); err != nil {
			t.Fatal(err)
		}
		if err := checkSize(review, []*PodPreset{{bytes: bytes}}); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d containers and %d bytes: got error %v, want %q", containers, bytes, err, want)
		}
	}
	size(1, addedMax+1, "") // a preset may be larger than the maximum for all containers
	size(2, addedMax+1, "3145729 bytes to each of 2 containers: want at most 3145728 bytes in all")
	size(727, (addedMax+1)/727, "want at most")
}

// TestUnapplied checks the warnings and counters of presets that are not applied.
func TestUnapplied(t *testing.T) {
	f := func(container, spec, want, series string) {
		t.Helper()
		set, needs := metrics.NewSet(), Plugin().Needs
		state, err := cluster.New(cluster.Options{Objects: []runtime.Object{preset(t, "namespace", "a", spec)},
			Kinds: cluster.KindsOf(needs...), Metrics: set})
		if err == nil {
			err = state.Follow(t.Context(), needs...)
		}
		if err != nil {
			t.Fatal(err)
		}
		handler, err := newHandler(admission.Setup{Cluster: state.View(needs...)})
		if err != nil {
			t.Fatal(err)
		}
		review := new(codec.Review)
		if err := review.Decode(admissiontest.Body(codec.Create, pods, `{"spec":{"containers":[`+container+`]}}`)); err != nil {
			t.Fatal(err)
		}
		if result := handler.Admit(t.Context(), review); result.Err != nil || result.Denial != nil {
			t.Fatalf("got error %v and denial %v", result.Err, result.Denial)
		}
		if got := strings.ReplaceAll(string(review.AppendResponse(nil)), `\"`, `"`); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
		var page strings.Builder
		set.WritePrometheus(&page)
		if line := `fastadmit_podpreset_unapplied_total{reason="` + series + `"} 1`; !strings.Contains(page.String(), line) {
			t.Errorf("%s: got\n%s\nwant %s", spec, page.String(), line)
		}
	}
	f(`{}`, `{"env":"B"}`, "PodPreset a is ignored: ", "invalid")
	const head = "conflict occurred while applying podpresets: a: merging "
	f(`{"env":[{"name":"A","value":"1"}]}`, `{"env":[{"name":"A"}]}`, head+"env for a has a conflict on A", "conflict")
	from := func(source string) string { return `{"envFrom":[` + source + `]}` }
	f(from(`{"prefix":"p","configMapRef":{"name":"m","optional":true}}`), from(`{"prefix":"p","configMapRef":{"name":"m"}}`),
		head+`envFrom for a has a conflict on ConfigMap m with prefix "p"`, "conflict")
	f(from(`{"prefix":"p","secretRef":{"name":"s","optional":true}}`), from(`{"prefix":"p","secretRef":{"name":"s"}}`),
		head+`envFrom for a has a conflict on Secret s with prefix "p"`, "conflict")
	f(from(`{"prefix":"p","secretRef":{"optional":true}}`), from(`{"prefix":"p"}`),
		head+`envFrom for a has a conflict on prefix "p"`, "conflict")
	mounts := func(name, path string) string {
		return `{"volumeMounts":[{"name":"` + name + `","mountPath":"` + path + `"}]}`
	}
	f(mounts("v", "/a"), mounts("v", "/b"), head+"volume mounts for a has a conflict on v", "conflict")
	f(mounts("v", "/a"), mounts("w", "/a"), head+"volume mounts for a has a conflict on mount path /a", "conflict")
}

// TestCachedFields checks which fields of a preset are cached.
func TestCachedFields(t *testing.T) {
	given := &PodPreset{
		TypeMeta: metav1.TypeMeta{APIVersion: "settings.k8s.io/v1alpha1", Kind: "PodPreset"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "p", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
			Annotations: map[string]string{"a": "b"},
		},
	}
	needs := Plugin().Needs
	state, err := cluster.New(cluster.Options{Objects: []runtime.Object{given}, Kinds: cluster.KindsOf(needs...)})
	if err == nil {
		err = state.Follow(t.Context(), needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	presets, err := PodPresets.In(state.View(needs...)).List("n")
	if err != nil {
		t.Fatal(err)
	}
	if cached := presets[0]; cached.ManagedFields != nil || cached.Annotations != nil ||
		cached.selector == nil {
		t.Errorf("got %+v, want neither managed fields nor annotations, and the selector", cached)
	}
	if given.ManagedFields == nil || given.Annotations == nil {
		t.Errorf("got %+v, want the object as it was", given)
	}
}

// TestWithoutTheKind has an API server without presets.
func TestWithoutTheKind(t *testing.T) {
	chain := admissiontest.LiveChain(t, Plugin(), func(*http.Request) any {
		return &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
	})
	admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed, admissiontest.Body(codec.Create, pods, `{"spec":{}}`))
}

// TestNamesShown has a conflict of more presets than a warning names.
func TestNamesShown(t *testing.T) {
	var all []*PodPreset
	for i := range 100 {
		all = append(all, preset(t, "namespace", fmt.Sprintf("%s-%03d", strings.Repeat("n", 60), i), `{}`))
	}
	got := namesOf(all)
	if !strings.HasSuffix(got, "-030,...") || len(got) > namesShown+len(",...") {
		t.Errorf("got %d bytes: %s", len(got), got)
	}
	first := preset(t, "namespace", strings.Repeat("n", namesShown/2), `{}`)
	for length, want := range map[int]string{namesShown/2 - 1: "," + strings.Repeat("m", namesShown/2-1), namesShown / 2: ",..."} {
		if got := namesOf([]*PodPreset{first, preset(t, "namespace", strings.Repeat("m", length), `{}`)}); got != first.Name+want {
			t.Errorf("%d bytes more: got %s, want %s after the first", length, got, want)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", preset(t, "elsewhere", "a", `{"env":[{"name":"A"}]}`))
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
}

func BenchmarkAdmit(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", preset(b, "shop", "a", `{"env":[{"name":"A"}]}`))
	admissiontest.Benchmark(b, chain, admission.Mutate, admission.OutcomePatched, corpus.MustRead("pods-create-v1-1.json"))
}
