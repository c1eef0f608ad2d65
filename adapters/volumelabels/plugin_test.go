package main

import (
	"fmt"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/persistentvolumelabel"
)

// TestPlugin calls the program with fastadmit's plugin as the client. The clouds are
// fakes.
func TestPlugin(t *testing.T) {
	f := newFake(t)
	f.volumes = map[string][]string{"vol-1": {"us-east-1b"}}
	f.disks = map[string]map[string]string{"us-central1-a": {"one": zonesURL + "zones/us-central1-a", "twice": ""},
		"us-central1-c": {"twice": ""}}
	f.replica = map[string][]string{"wide": {zonesURL + "zones/us-central1-b", zonesURL + "zones/us-central1-a"}}
	address := start(t, "--providers=aws,gce", "--gce-project=project", "--gce-region=us-central1",
		"--gce-endpoint="+f.url+"/compute/v1/", "--cache-ttl=0")
	chain := admissiontest.MustChain(t, persistentvolumelabel.Plugin(), "apiVersion: fastadmit.io/v1alpha1\n"+
		"kind: PersistentVolumeLabelConfiguration\nendpoint: {url: 'http://"+address+"/labels'}\n")
	const volumes = "v1/persistentvolumes"
	labeled := func(source, has, zone, region, in string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, volumes, fmt.Sprintf(`{"metadata":{"labels":{%s}},"spec":{%s}}`, has, source),
			fmt.Sprintf(`{"metadata":{"labels":{"topology.kubernetes.io/zone":%q,"topology.kubernetes.io/region":%q}},"spec":{%s,`+
				`"nodeAffinity":`+
				`{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"topology.kubernetes.io/region","operator":"In",`+
				`"values":[%q]},`+
				`{"key":"topology.kubernetes.io/zone","operator":"In","values":[%s]}]}]}}}}`, zone, region, source, region, in))
	}
	outcome := func(source, has string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want,
			admissiontest.Body(codec.Create, volumes, fmt.Sprintf(`{"metadata":{"labels":{%s}},"spec":{%s}}`, has, source)))
	}
	ebs := func(id string) string { return fmt.Sprintf(`"awsElasticBlockStore":{"volumeID":%q}`, id) }
	pd := func(name string) string { return fmt.Sprintf(`"gcePersistentDisk":{"pdName":%q}`, name) }
	in := func(zone string) string { return fmt.Sprintf(`"topology.kubernetes.io/zone":%q`, zone) }
	labeled(ebs("aws://us-east-1b/vol-1"), in("wrong"), "us-east-1b", "us-east-1", `"us-east-1b"`)
	labeled(pd("one"), "", "us-central1-a", "us-central1", `"us-central1-a"`)
	labeled(pd("twice"), in("us-central1-c"), "us-central1-c", "us-central1", `"us-central1-c"`)
	labeled(pd("wide"), "", "us-central1-a__us-central1-b", "us-central1", `"us-central1-a","us-central1-b"`)
	outcome(ebs("vol-2"), "", admission.OutcomeDenied)
	outcome(pd("twice"), "", admission.OutcomeDenied)
	outcome(pd("one"), in("us-central1-b"), admission.OutcomeDenied)
	outcome(pd("../one"), "", admission.OutcomeDenied)
	outcome(`"azureDisk":{"diskName":"d","diskURI":"d"}`, "", admission.OutcomeDenied)
	f.broken.Store(true)
	outcome(ebs("vol-1"), "", admission.OutcomeErrored)
	outcome(pd("one"), "", admission.OutcomeErrored)
}
