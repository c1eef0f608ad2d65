package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"

	"github.com/fastadmit/fastadmit/corpus"
)

// sequenceMin is the minimum length of the sequence in which recordings are sent. In a shorter
// sequence, small differences between weights would be lost.
const sequenceMin = 1 << 12

// A Mix contains recordings and the order in which they are sent. The order is the same
// in all runs. When all recordings have been sent, it starts again.
type Mix struct {
	recordings []*Recording
	sequence   []*Recording
}

// NewMix creates a mix. The seed determines the order of the recordings.
//
// The keys of weights are kinds, such as "pods:create" or "pods/status:update", or
// resources, such as "pods" or "pods/status", for all operations on them that have no
// weight of their own. Recordings with the same key share its weight. Recordings without
// a weight are not sent. If weights is empty, all recordings are sent equally often.
//
// NewMix returns an error if a weight is negative or has no recordings, or if nothing is
// left to send.
func NewMix(recordings []*Recording, weights map[string]float64, seed uint64) (*Mix, error) {
	shares, err := shares(recordings, weights)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	m := new(Mix)
	length := float64(max(sequenceMin, 8*len(recordings)))
	for i, original := range recordings {
		if shares[i] == 0 {
			continue
		}
		r := *original
		r.place = len(m.recordings)
		m.recordings = append(m.recordings, &r)
		for range max(1, int(shares[i]*length+0.5)) {
			m.sequence = append(m.sequence, &r)
		}
	}
	if len(m.recordings) == 0 {
		return nil, fmt.Errorf("bench: got %d recordings and the weights %v, want at least one with a weight above 0", len(recordings), weights)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(m.sequence), func(i, j int) { m.sequence[i], m.sequence[j] = m.sequence[j], m.sequence[i] })
	return m, nil
}

// shares returns the share of each recording in the load.
func shares(recordings []*Recording, weights map[string]float64) ([]float64, error) {
	shares := make([]float64, len(recordings))
	if len(weights) == 0 {
		for i := range shares {
			shares[i] = 1 / float64(len(shares))
		}
		return shares, nil
	}
	var total float64
	members := make(map[string]int)
	keys := make([]string, len(recordings))
	for i, r := range recordings {
		keys[i] = r.Kind
		if _, named := weights[r.Kind]; !named {
			keys[i], _, _ = strings.Cut(r.Kind, ":")
		}
		members[keys[i]]++
	}
	for key, weight := range weights {
		if weight < 0 {
			return nil, fmt.Errorf("got the weight %g for %q, want 0 or more", weight, key)
		}
		if members[key] == 0 {
			return nil, fmt.Errorf("got a weight for %q, of which there is no recording; there are %s", key, kinds(recordings))
		}
		total += weight
	}
	for i, key := range keys {
		if weight := weights[key]; weight > 0 {
			shares[i] = weight / total / float64(members[key])
		}
	}
	return shares, nil
}

// kinds lists the kinds of the recordings, once each.
func kinds(recordings []*Recording) string {
	var all []string
	seen := make(map[string]bool)
	for _, r := range recordings {
		if !seen[r.Kind] {
			seen[r.Kind] = true
			all = append(all, r.Kind)
		}
	}
	return strings.Join(all, ", ")
}

// String returns a short description of the mix for reports.
func (m *Mix) String() string {
	if len(m.recordings) == 1 {
		return fmt.Sprintf("%s, %d bytes", m.recordings[0].Name, m.recordings[0].Bytes())
	}
	var bytes int64
	for _, r := range m.sequence {
		bytes += int64(r.Bytes())
	}
	return fmt.Sprintf("%d recordings, %d bytes on average", len(m.recordings), bytes/int64(len(m.sequence)))
}

// at returns the recording that is sent as the nth request.
func (m *Mix) at(n int64) *Recording { return m.sequence[n%int64(len(m.sequence))] }

// Bundled returns the recordings in package corpus, which a real kube-apiserver sent.
// version is the AdmissionReview version: "v1" or "v1beta1".
func Bundled(version string) ([]*Recording, error) {
	var all []*Recording
	for _, name := range corpus.Names() {
		r, err := NewRecording(strings.TrimSuffix(name, ".json"), corpus.MustRead(name))
		if err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
		if r.version == "admission.k8s.io/"+version {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("bench: got review version %q, want v1 or v1beta1", version)
	}
	return all, nil
}

// ReadDir reads recordings from all files in a directory whose names end with ".json".
// If the name ends with ".allowed.json" or ".denied.json", the answer must have that
// decision.
func ReadDir(dir fs.FS) ([]*Recording, error) {
	names, err := fs.Glob(dir, "*.json")
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	var all []*Recording
	for _, name := range names {
		body, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, fmt.Errorf("bench: cannot read a recording: %w", err)
		}
		r, err := NewRecording(strings.TrimSuffix(name, ".json"), body)
		if err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
		switch path.Ext(r.Name) {
		case ".allowed":
			r.Expect = Allowed
		case ".denied":
			r.Expect = Denied
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, errors.New("bench: found no file that ends in .json, want AdmissionReviews, one in each file")
	}
	return all, nil
}
