package denyserviceexternalips

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

const services = "v1/services"

// create returns a review of a new Service with this JSON as externalIPs.
func create(ips string) []byte { return admissiontest.Body(codec.Create, services, service(ips)) }

// update returns a review of an update of a Service from the external IPs was to ips.
func update(ips, was string) []byte {
	return admissiontest.UpdateBody(services, service(ips), service(was))
}

func service(ips string) string {
	return `{"metadata":{"name":"test-svc","namespace":"test-ns"},"spec":{"externalIPs":` + ips + `}}`
}

func TestExternalIPs(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(about string, body []byte, want bool) {
		t.Helper()
		var got struct{ Allowed bool }
		if err := json.Unmarshal(admissiontest.Answer(t, chain, admission.Validate, body), &got); err != nil {
			t.Fatal(err)
		}
		if got.Allowed != want {
			t.Errorf("%s: got allowed %v, want %v", about, got.Allowed, want)
		}
	}

	// The in-tree plugin's own cases.
	f("create without", create(`null`), true)
	f("create with", create(`["1.1.1.1"]`), false)
	f("update: same", update(`["1.1.1.1","2.2.2.2"]`, `["1.1.1.1","2.2.2.2"]`), true)
	f("update: reorder", update(`["1.1.1.1","2.2.2.2"]`, `["2.2.2.2","1.1.1.1"]`), true)
	f("update: change", update(`["1.1.1.1","2.2.2.2"]`, `["1.1.1.1","3.3.3.3"]`), false)
	f("update: add", update(`["1.1.1.1","2.2.2.2"]`, `["1.1.1.1"]`), false)
	f("update: erase", update(`null`, `["1.1.1.1","2.2.2.2"]`), true)
	f("update: reduce from back", update(`["1.1.1.1"]`, `["1.1.1.1","2.2.2.2"]`), true)
	f("update: reduce from front", update(`["2.2.2.2"]`, `["1.1.1.1","2.2.2.2"]`), true)

	// Cases that its code implies.
	f("create with an empty list", create(`[]`), true)
	f("update: empty list", update(`[]`, `["1.1.1.1"]`), true)
	f("update: first one", update(`["1.1.1.1"]`, `null`), false)
	f("update: first one, the list was empty", update(`["1.1.1.1"]`, `[]`), false)
	f("update: repeat", update(`["1.1.1.1","1.1.1.1"]`, `["1.1.1.1"]`), true)
	f("update: repeat a new one", update(`["2.2.2.2","2.2.2.2"]`, `["1.1.1.1","2.2.2.3"]`), false)
	f("update: the same address in another form", update(`["::1"]`, `["0:0:0:0:0:0:0:1"]`), false)
	f("update: the same address with escapes", update(`["1.1.1.\u0031"]`, `["1.1.1.1"]`), true)
	f("update: no old object", admissiontest.Body(codec.Update, services, service(`["1.1.1.1"]`)), false)

	// No API server sends these.
	f("create: no list", create(`"1.1.1.1"`), true)
	f("create: not addresses", create(`[null,1,{}]`), false)
	f("create: no spec", admissiontest.Body(codec.Create, services, `{"spec":null}`), true)
	f("create: spec is no object", admissiontest.Body(codec.Create, services, `{"spec":["1.1.1.1"]}`), true)
	f("create: no object", admissiontest.Body(codec.Create, services, `null`), true)
}

// TestManyAddresses would time out if the cost were quadratic.
func TestManyAddresses(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	many := strings.Repeat(`,"1.1.1.1","2.2.2.2"`, 100_000)
	body := update("["+many[1:]+"]", `["2.2.2.2"`+many+"]")
	if got, want := string(admissiontest.Answer(t, chain, admission.Validate, body)), `{"allowed":true}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(body []byte) {
		t.Helper()
		admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, body)
	}
	f(corpus.MustRead("services-create-v1-1.json"))
	f(update(`["1.1.1.1","2.2.2.2"]`, `["1.1.1.1","2.2.2.2"]`))
	f(update(`["2.2.2.2"]`, `["1.1.1.1","2.2.2.2"]`))
}
