package persistentvolumelabel

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	volumes = "v1/persistentvolumes"
	head    = "apiVersion: fastadmit.io/v1alpha1\nkind: PersistentVolumeLabelConfiguration\n"
	zones   = `"a":"1","b":"2","topology.kubernetes.io/zone":"1__2__3"`
	beta    = `"a":"1","b":"2","failure-domain.beta.kubernetes.io/zone":"1__2__3"`
	ga      = `"topology.kubernetes.io/region":"region1","topology.kubernetes.io/zone":"domain1"`
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// table returns a configuration with disk 123 of each provider, which has these labels.
func table(labels string) string {
	var b strings.Builder
	b.WriteString(head + "volumes:\n")
	for _, p := range providers {
		fmt.Fprintf(&b, "- {provider: %s, id: '123', labels: {%s}}\n", p.name, labels)
	}
	return b.String()
}

// in returns an expression that selects nodes by a label.
func in(key string, values ...string) string {
	return fmt.Sprintf(`{"key":%q,"operator":"In","values":["%s"]}`, key, strings.Join(values, `","`))
}

func affinity(terms ...string) string {
	for i := range terms {
		terms[i] = `{"matchExpressions":[` + terms[i] + `]}`
	}
	return `"nodeAffinity":{"required":{"nodeSelectorTerms":[` + strings.Join(terms, ",") + `]}}`
}

// TestUpstream has upstream's own cases (label/admission_test.go of v1.26 and v1.29).
func TestUpstream(t *testing.T) {
	f := func(labels, object, want string) {
		t.Helper()
		admissiontest.CheckAdmit(t, admissiontest.MustChain(t, Plugin(), table(labels)), volumes, object, want)
	}
	const (
		hostPath  = `{"spec":{"hostPath":{"path":"/"}}}`
		ebs       = `"awsElasticBlockStore":{"volumeID":"123"}`
		pd        = `"gcePersistentDisk":{"pdName":"123"}`
		azure     = `"azureDisk":{"diskName":"n","diskURI":"123"}`
		vsphere   = `"vsphereVolume":{"volumePath":"123"}`
		provision = `"annotations":{"pv.kubernetes.io/provisioned-by":"kubernetes.io/aws-ebs"}`
	)
	f(zones, hostPath, hostPath)
	has := `"failure-domain.beta.kubernetes.io/region":"existingRegion","failure-domain.beta.kubernetes.io/zone":"existingDomain"`
	f(ga, `{"metadata":{"labels":{`+has+`},`+provision+`},"spec":{`+ebs+`}}`,
		`{"metadata":{"labels":{`+has+`},`+provision+`},"spec":{`+ebs+`,`+
			affinity(in("failure-domain.beta.kubernetes.io/region", "existingRegion")+","+
				in("failure-domain.beta.kubernetes.io/zone", "existingDomain"))+`}}`)
	has = `"topology.kubernetes.io/region":"existingRegion","topology.kubernetes.io/zone":"existingDomain"`
	f(ga, `{"metadata":{"labels":{`+has+`},`+provision+`},"spec":{`+ebs+`}}`,
		`{"metadata":{"labels":{`+has+`},`+provision+`},"spec":{`+ebs+`,`+
			affinity(in("topology.kubernetes.io/region", "existingRegion")+","+in("topology.kubernetes.io/zone", "existingDomain"))+`}}`)
	f(ga, `{"metadata":{"labels":{`+has+`}},"spec":{`+vsphere+`}}`, `{"metadata":{"labels":{`+ga+`}},"spec":{`+vsphere+`,`+
		affinity(in("topology.kubernetes.io/region", "region1")+","+in("topology.kubernetes.io/zone", "domain1"))+`}}`)
	both := in("a", "1") + "," + in("b", "2") + ","
	for _, source := range []string{ebs, pd, azure, vsphere} {
		f(zones, `{"spec":{`+source+`}}`,
			`{"metadata":{"labels":{`+zones+`}},"spec":{`+source+`,`+affinity(both+in("topology.kubernetes.io/zone", "1", "2", "3"))+`}}`)
		f(beta, `{"spec":{`+source+`}}`,
			`{"metadata":{"labels":{`+beta+`}},"spec":{`+source+`,`+
				affinity(both+in("failure-domain.beta.kubernetes.io/zone", "1", "2", "3"))+`}}`)
	}
	old := in("a", "1") + "," + in("b", "2") + "," + in("c", "3")
	f(`d: "1", e: "2", f: "3"`, `{"metadata":{"labels":{"a":"1","b":"2","c":"3"}},"spec":{`+vsphere+`,`+affinity(old)+`}}`,
		`{"metadata":{"labels":{"a":"1","b":"2","c":"3","d":"1","e":"2","f":"3"}},"spec":{`+vsphere+`,`+
			affinity(old+","+in("d", "1")+","+in("e", "2")+","+in("f", "3"))+`}}`)
}

// TestTerms has volumes with a node affinity.
func TestTerms(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), table(`"k": v`))
	f := func(spec, want string) {
		t.Helper()
		const pd = `"gcePersistentDisk":{"pdName":"123"}`
		admissiontest.CheckAdmit(t, chain, volumes, `{"spec":{`+pd+spec+`}}`, `{"metadata":{"labels":{"k":"v"}},"spec":{`+pd+","+want+`}}`)
	}
	f(`,"nodeAffinity":null`, affinity(in("k", "v")))
	f(`,"nodeAffinity":{"required":null}`, affinity(in("k", "v")))
	f(`,"nodeAffinity":{"required":{"nodeSelectorTerms":null}}`, affinity(in("k", "v")))
	f(`,"nodeAffinity":{"required":{"nodeSelectorTerms":[]}}`, affinity(in("k", "v")))
	f(`,"nodeAffinity":{"required":{"nodeSelectorTerms":[{}]}}`, affinity(in("k", "v")))
	f(","+affinity(in("a", "1"), in("b", "2")), affinity(in("a", "1")+","+in("k", "v"), in("b", "2")+","+in("k", "v")))
	f(","+affinity(in("a", "1"), in("k", "2")), affinity(in("a", "1"), in("k", "2"))) // one has the key, so all are unchanged
	f(`,"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchFields":[{"key":"k"}]}]}}`,
		`"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchFields":[{"key":"k"}],"matchExpressions":[`+in("k", "v")+`]}]}}`)
}

func TestOutcomes(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), table(zones))
	f := func(operation codec.Operation, resource, object string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, admissiontest.Body(operation, resource, object))
	}
	const known = `{"spec":{"gcePersistentDisk":{"pdName":"123"}}}`
	f(codec.Create, volumes, known, admission.OutcomePatched)
	f(codec.Update, volumes, known, admission.OutcomeAllowed)
	f(codec.Create, "v1/persistentvolumes/status", known, admission.OutcomeAllowed)
	f(codec.Create, "v1/persistentvolumeclaims", known, admission.OutcomeAllowed)
	f(codec.Create, volumes, `null`, admission.OutcomeAllowed)

	// Unknown disks, also with invalid names.
	for _, id := range []string{"", ".", "..", "a/b", "%2F", strings.Repeat("x", idMax), strings.Repeat("x", idMax+1)} {
		for _, p := range providers {
			f(codec.Create, volumes, fmt.Sprintf(`{"spec":{%q:{%q:%q}}}`, p.source, p.id, id), admission.OutcomeDenied)
		}
	}
	f(codec.Create, volumes, `{"spec":{"gcePersistentDisk":{}}}`, admission.OutcomeDenied)
	f(codec.Create, volumes, `{"spec":{"gcePersistentDisk":{"pdName":null}}}`, admission.OutcomeDenied)
	f(codec.Create, volumes, `{"spec":{"gcePersistentDisk":null}}`, admission.OutcomeAllowed)

	// Disks that are still being created.
	for _, p := range providers {
		want := admission.OutcomeAllowed
		if p.name == "vsphere" {
			want = admission.OutcomeDenied
		}
		f(codec.Create, volumes, fmt.Sprintf(`{"spec":{%q:{%q:%q}}}`, p.source, p.called, placeholder), want)
	}

	// Labels of a provisioner, valid and invalid.
	provisioned := func(zone string) string {
		return `{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":""},"labels":{"topology.kubernetes.io/region":"r",` +
			`"topology.kubernetes.io/zone":"` + zone + `"}},"spec":{"hostPath":{}}}`
	}
	f(codec.Create, volumes, provisioned("a__b"), admission.OutcomePatched)
	f(codec.Create, volumes, provisioned("a__ "), admission.OutcomeDenied)
	f(codec.Create, volumes, provisioned(""), admission.OutcomeDenied)
	f(codec.Create, volumes, provisioned(strings.Repeat("x", labelMax)), admission.OutcomePatched)
	f(codec.Create, volumes, provisioned(strings.Repeat("x", labelMax+1)), admission.OutcomeAllowed)
}

// TestEndpoint asks an endpoint for the labels.
func TestEndpoint(t *testing.T) {
	answers := map[string]string{
		"ok": `{"labels":{"topology.kubernetes.io/zone":"z"}}`, "none": `{}`, "odd": `{"labels":{"a b":"c"}}`,
		"value":  `{"labels":{"a":"b c"}}`,
		"broken": `{`, "long": `{"labels":{},"x":"` + strings.Repeat("x", 64<<10) + `"}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.FormValue("id")
		if zone := r.FormValue("zone"); zone != "" {
			id += "/" + zone
		}
		if r.FormValue("provider") != "aws" && !strings.HasPrefix(id, "zoned") || r.URL.Path != "/volumes" {
			http.Error(w, "another provider", http.StatusBadRequest)
			return
		}
		answer, ok := answers[id]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	config := head + "endpoint: {url: " + server.URL + "/volumes}\nvolumes: [{provider: aws, id: known, labels: {k: v}}]\n"
	chain := admissiontest.MustChain(t, Plugin(), config)
	f := func(source, id string, want admission.Outcome) {
		t.Helper()
		object := fmt.Sprintf(`{"spec":{%q:{"volumeID":%q,"pdName":%q}}}`, source, id, id)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, admissiontest.Body(codec.Create, volumes, object))
	}
	const ebs = "awsElasticBlockStore"
	f(ebs, "ok", admission.OutcomePatched)
	f(ebs, "known", admission.OutcomePatched)
	f(ebs, "none", admission.OutcomeAllowed)
	f(ebs, "missing", admission.OutcomeDenied)
	f(ebs, "ok&provider=gce", admission.OutcomeDenied) // the name is escaped in the URL
	f(ebs, "odd", admission.OutcomeErrored)
	f(ebs, "value", admission.OutcomeErrored)
	f(ebs, "broken", admission.OutcomeErrored)
	f(ebs, "long", admission.OutcomeErrored)
	f("gcePersistentDisk", "ok", admission.OutcomeErrored)
	// The zone label selects one of several GCE disks.
	zoned := func(source, labels, zone string, want admission.Outcome) {
		t.Helper()
		answers["zoned"+zone] = `{"labels":{"k":"v"}}`
		object := fmt.Sprintf(`{"metadata":{"labels":{%s}},"spec":{%q:{"volumeID":"zoned","pdName":"zoned"}}}`, labels, source)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, admissiontest.Body(codec.Create, volumes, object))
		delete(answers, "zoned"+zone)
	}
	const gcePD, zone, betaZone = "gcePersistentDisk", `"topology.kubernetes.io/zone":`, `"failure-domain.beta.kubernetes.io/zone":`
	zoned(gcePD, zone+`"z"`, "/z", admission.OutcomePatched)
	zoned(gcePD, zone+`"a__b&c=d"`, "/a__b&c=d", admission.OutcomePatched)
	zoned(gcePD, betaZone+`"z"`, "/z", admission.OutcomePatched)
	zoned(gcePD, zone+`"",`+betaZone+`"z"`, "/z", admission.OutcomePatched)
	zoned(gcePD, zone+`"y",`+betaZone+`"z"`, "/y", admission.OutcomePatched)
	zoned(gcePD, "", "", admission.OutcomePatched)
	zoned(gcePD, zone+`null`, "", admission.OutcomePatched)
	zoned(gcePD, zone+`"z"`, "", admission.OutcomeDenied)
	zoned(ebs, zone+`"z"`, "", admission.OutcomePatched)
	long := strings.Repeat("z", idMax)
	zoned(gcePD, zone+`"`+long+`"`, "/"+long, admission.OutcomePatched)
	zoned(gcePD, zone+`"`+long+`z"`, "/"+long+"z", admission.OutcomeDenied)
	server.Close()
	f(ebs, "ok", admission.OutcomeErrored)
	f(ebs, "known", admission.OutcomePatched)
}

func TestConfigurationErrors(t *testing.T) {
	f := func(config, want string) {
		t.Helper()
		_, err := admissiontest.NewChain(Plugin(), config)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot error %v\nwant one with %s", config, err, want)
		}
	}
	f(head, "volumes: Required value: want volumes or an endpoint, which have the labels of volumes")
	f("volumes: []", `apiVersion: Unsupported value: ""`)
	f(head+"volumes: [{provider: aliyun, id: '', labels: {}}]",
		`volumes[0].provider: Unsupported value: "aliyun": supported values: "aws", "gce", "azure", "vsphere"`)
	f(head+"volumes: [{provider: aws, id: ''}]", `volumes[0].id: Invalid value: ""`)
	f(head+"volumes: [{provider: aws, id: x}]", `volumes[0].labels: Required value`)
	f(head+"volumes: [{provider: aws, id: x, labels: {a b: c}}]", `volumes[0].labels[a b]: Invalid value: "c"`)
	f(head+"volumes: [{provider: aws, id: x, labels: {a: b c}}]", `volumes[0].labels[a]: Invalid value: "b c"`)
	f(head+"volumes: [{provider: aws, id: x, labels: {a: b}}, {provider: aws, id: x, labels: {a: b}}]",
		`volumes[1].id: Duplicate value: "x"`)
	f(head+"endpoint: {url: 'ftp://a'}", `endpoint.url: Invalid value: "ftp://a"`)
	f(head+"endpoint: {url: 'http://a?b=c'}", `endpoint.url: Invalid value`)
	f(head+"endpoint: {url: 'https://a', caFile: ca.crt}", `endpoint.caFile: Invalid value: "ca.crt": must be an absolute path`)
	f(head+"endpoint: {url: 'https://a', certFile: /c}", `certFile and keyFile must be given together`)
	f(head+"endpoint: {url: 'https://a', caFile: /nowhere/ca.crt}", `cannot make a client for https://a`)
	f(head+"volume: []", `unknown field "volume"`)
}
