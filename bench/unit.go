package bench

import (
	"math"
	"strconv"
)

// Unit is the unit of a number in reports.
type Unit int

// The units.
const (
	Number Unit = iota
	Time        // microseconds
	Bytes
)

// Format returns the number with three significant digits and its unit, such as
// "1.23 ms". Digits before the decimal point are never dropped.
func (u Unit) Format(value float64) string {
	switch u {
	case Time:
		return scaled(value, 1000, "µs", "ms", "s")
	case Bytes:
		return scaled(value, 1024, "B", "KiB", "MiB", "GiB")
	}
	return digits(value)
}

// scaled formats a number in the largest unit in which it is at least 1.
func scaled(value, step float64, units ...string) string {
	unit := 0
	for math.Abs(value) >= step && unit < len(units)-1 {
		value /= step
		unit++
	}
	return digits(value) + " " + units[unit]
}

// digits formats a number with three significant digits, or with all digits before the decimal
// point.
func digits(value float64) string {
	if math.Abs(value) >= 100 || value == math.Trunc(value) {
		return strconv.FormatFloat(value, 'f', 0, 64)
	}
	text := strconv.FormatFloat(value, 'g', 3, 64)
	if rounded, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(rounded) >= 0.1 {
		places := 2 - int(math.Floor(math.Log10(math.Abs(rounded))))
		return strconv.FormatFloat(rounded, 'f', min(places, 2), 64)
	}
	return text
}
