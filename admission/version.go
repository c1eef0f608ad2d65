package admission

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is a minor release of Kubernetes: plugins behave as its kube-apiserver does. The zero
// Version is the newest. A plugin reads it when its handler is made.
type Version struct{ behind uint16 } // the number of newer minor releases

// The minor releases of Kubernetes 1 that can be emulated.
const (
	oldestMinor = 33
	newestMinor = 37
)

// Newest is the newest Version that can be emulated.
func Newest() Version { return Version{} }

// Oldest is the oldest Version that can be emulated.
func Oldest() Version { return Version{newestMinor - oldestMinor} }

// Versions returns all versions that can be emulated, from Oldest to Newest.
func Versions() (all []string) {
	for behind := newestMinor - oldestMinor; behind >= 0; behind-- {
		all = append(all, Version{uint16(behind)}.String())
	}
	return all
}

// ParseVersion reads a version in the form of kube-apiserver's flag --emulated-version, as
// 1.34. An older release than Oldest gives Oldest, a newer one than Newest gives Newest; isKnown
// is false then.
func ParseVersion(text string) (v Version, isKnown bool, err error) {
	number, isFirst := strings.CutPrefix(text, "1.")
	minor, wrong := strconv.ParseUint(number, 10, 16)
	if !isFirst || wrong != nil {
		return Version{}, false, fmt.Errorf("got version %q, want a minor release of Kubernetes, as %s", text, Newest())
	}
	known := min(max(minor, oldestMinor), newestMinor)
	return Version{uint16(newestMinor - known)}, known == minor, nil
}

// AtLeast reports whether v is the release major.minor or a newer one.
func (v Version) AtLeast(major, minor int) bool { return major < 1 || major == 1 && minor <= v.Minor() }

// Has reports whether v is the release first or a newer one. first is as in Plugin.FirstRelease.
func (v Version) Has(first string) bool {
	known, _, err := ParseVersion(first)
	return err == nil && v.behind <= known.behind
}

// Minor returns the number of the minor release, 34 for 1.34.
func (v Version) Minor() int { return newestMinor - int(v.behind) }

// String returns the version in the form that ParseVersion reads.
func (v Version) String() string { return "1." + strconv.Itoa(v.Minor()) }
