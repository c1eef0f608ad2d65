package quantity

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fastadmit/fastadmit/codec"
)

// TestParse expects the result of resource.ParseQuantity for quantities within the
// limit, and an error beyond it. It tests the limit and its neighbours.
func TestParse(t *testing.T) {
	digits := func(n int) string { return strings.Repeat("7", n) }
	for _, text := range []string{
		"", "0", "1", "-1.5", "100Mi", "1E", "1Ei", "1e3", "1E3", "+1e-3", "12345678", "0.123456789012", "1e", "abcdefgh",
		"1e1x2y3z", "123456Ei",
		"1e9999", "1e10000", "1E10000", "1e-10000", "-1e-9999", "1e4294967296", "1e-4294967299", "1e99999999999999999999", "1e00000000001",
		digits(PlacesMax - 1), digits(PlacesMax), "0." + digits(PlacesMax-2), digits(PlacesMax-2) + "Mi", digits(PlacesMax) + "Ki",
		strings.Repeat("word ", 4000), strings.Repeat("e", 20_000), "1e" + digits(20_000), "1" + strings.Repeat("K", 20_000),
	} {
		document := documentOf(t, `{"q":`+strconv.Quote(text)+`}`)
		got, err := Parse(document.Get("q"))
		want, wantErr := resource.ParseQuantity(text)
		if (err == nil) != (wantErr == nil) || got.Cmp(want) != 0 || got.String() != want.String() || document.Err() != nil {
			t.Errorf("%.20s: got %.40s, %v, want %.40s, %v", text, got.String(), err, want.String(), wantErr)
		}
	}
	for _, text := range []string{
		"1e10001", "1E10001", "1e-10001", "-1e1000000000", "1e-1000000000", "1e+2147483647", "1e2147483648", "1e3000000000",
		"1e4294957295",
		digits(PlacesMax + 1), "0." + digits(PlacesMax-1), digits(PlacesMax+1) + "Mi", digits(1 << 20), "-" + digits(PlacesMax),
	} {
		document := documentOf(t, `{"q":`+strconv.Quote(text)+`}`)
		var tooLarge *codec.SizeError
		if q, err := Parse(document.Get("q")); !errors.As(err, &tooLarge) || tooLarge.Max != PlacesMax ||
			!errors.As(document.Err(), &tooLarge) {
			t.Errorf("%.20s: got %.40s, %v, and the object's error %v, want both to be a SizeError", text, q.String(), err, document.Err())
		}
	}
}

func documentOf(t *testing.T, text string) *codec.Object {
	t.Helper()
	review := new(codec.Review)
	if err := review.Decode([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","object":` +
		text + `}}`)); err != nil {
		t.Fatal(err)
	}
	return &review.Object
}

// TestCheckDecoded finds quantities wherever decoding does, and no others.
func TestCheckDecoded(t *testing.T) {
	for text, fits := range map[string]bool{
		`{"metadata":{"labels":{"commit":"1e-99999"},"name":"1e-99999"},"spec":{"nodeName":"1e-99999",` +
			`"containers":[{"name":"1e-99999","env":[{"name":"A","value":"1e-99999"}]}]}}`: true,
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1","memory":"1Gi"}}}],"overhead":{"cpu":"1e9"}}}`:                  true,
		`{"spec":{"containers":[{},{"resources":{"limits":{"cpu":"1","x":"1e-99999"}}}]}}`:                                        false,
		`{"spec":{"initContainers":[{"resources":{"requests":{"cpu":"1e-99999"}}}]}}`:                                             false,
		`{"spec":{"ephemeralContainers":[{"resources":{"requests":{"cpu":"1e-99999"}}}]}}`:                                        false,
		`{"SPEC":{"Containers":[{"resources":{"LIMITS":{"cpu":"1e-99999"}}}]}}`:                                                   false,
		`{"spec":{"containers":[]},"spec":{"containers":[{"resources":{"limits":{"cpu":"1e-99999"}}}]}}`:                          false,
		`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1e-99999"}}]}}`:                                                            false,
		`{"spec":{"volumes":[{"ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":"1e-99999"}}}}}}]}}`: false,
		`{"spec":{"containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":"1e-99999"}}}]}]}}`:                           false,
		`{"spec":{"overhead":{"cpu":"1e-99999"}}}`:                                                                                false,
		`{"spec":{"resources":{"limits":{"cpu":"1e-99999"}}}}`:                                                                    false,
		`{"spec":{"containers":[{"resources":{"limits":{"x":"1e-99999","y":"1"}}}]}}`:                                             false,
		`{"spec":{"containers":[{"resources":{"limits":{"x":"1e-99999"}}},{"resources":{"limits":{"x":"1"}}}]}}`:                  false,
		`{"status":{"containerStatuses":[{"allocatedResources":{"cpu":"1e-99999"}}]}}`:                                            false,
	} {
		if err := CheckDecoded[*corev1.Pod](documentOf(t, text).Root()); (err == nil) != fits {
			t.Errorf("%s: got %v, want that it fits: %v", text, err, fits)
		}
	}
	if err := CheckDecoded[*corev1.ConfigMap](documentOf(t, `{"data":{"a":"1e-99999"}}`).Root()); err != nil {
		t.Errorf("a ConfigMap: got %v, want no error", err)
	}
}

// Embedded and embedded are in structs of TestFields.
type (
	Embedded struct{ Promoted resource.Quantity }
	embedded struct{ Inner resource.Quantity }
	Under    struct{ Q resource.Quantity }
	Behind   struct{ Far resource.Quantity }
)

// fields has quantities in all positions that a struct can have.
type fields struct {
	Tagged   resource.Quantity `json:"tag,omitempty"`
	Untagged resource.Quantity
	Skipped  resource.Quantity `json:"-"`
	hidden   resource.Quantity
	*Embedded
	embedded
	*Behind `json:"behind"`
	Under   `json:"under"`
	Array   [2]resource.Quantity
	Lists   [][]resource.Quantity
	Maps    map[string]*map[string]Under
	Self    *fields
	Selves  []fields
	Others  map[string]string
}

// TestFields finds a quantity wherever encoding/json parses one, and nowhere else.
func TestFields(t *testing.T) {
	for _, text := range []string{
		`{"tag":Q}`, `{"TAG":Q}`, `{"Tagged":Q}`, `{"Untagged":Q}`, `{"untagged":Q}`, `{"Skipped":Q}`, `{"-":Q}`, `{"":Q}`, `{"hidden":Q}`,
		`{"Promoted":Q}`, `{"Embedded":{"Promoted":Q}}`, `{"Inner":Q}`, `{"embedded":{"Inner":Q}}`, `{"Far":Q}`,
		`{"behind":{"Far":Q}}`, `{"Q":Q}`, `{"under":{"Q":Q}}`,
		`{"Array":["1",Q]}`, `{"Array":[Q,"1"]}`, `{"Lists":[["1"],[Q,"2"],["1"]]}`,
		`{"Maps":{"a":null,"b":{"c":{"Q":Q},"d":{}},"e":{}}}`, `{"Maps":{"Q":{"q":{"other":Q}}}}`,
		`{"Self":{"Self":{"tag":Q}}}`, `{"Selves":[{},{"under":{"Q":Q}},{}]}`, `{"Others":{"tag":Q}}`,
	} {
		parsed := json.Unmarshal([]byte(strings.ReplaceAll(text, ":Q", `:"no quantity"`)), new(fields)) != nil ||
			json.Unmarshal([]byte(strings.NewReplacer(`[Q`, `["no quantity"`, `,Q`, `,"no quantity"`, ":Q", ":null").Replace(text)),
				new(fields)) != nil
		document := documentOf(t, strings.NewReplacer(":Q", `:"1e-99999"`, "[Q", `["1e-99999"`, ",Q", `,"1e-99999"`).Replace(text))
		if err := CheckDecoded[fields](document.Root()); (err != nil) != parsed {
			t.Errorf("%s: got %v, want an error: %v", text, err, parsed)
		}
	}
	if f := new(fields); !f.hidden.IsZero() {
		t.Error("got a quantity in a field that is not exported")
	}
}
