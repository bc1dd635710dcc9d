package storetest

import (
	"fmt"
	"reflect"
	"time"

	"salvor/secret"
)

// fillRecord makes a record with every field of it, at any depth, set to a value of its own: what a
// store forgets to keep differs when it is read back. seed keeps the keys of records apart.
func fillRecord[R any](seed int) *R {
	r := new(R)
	f := recordFiller{seed: seed}
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		// The store gives these.
		if name := v.Type().Field(i).Name; name != "Record" && name != "Num" {
			f.fill(v.Field(i), name)
		}
	}
	return r
}

type recordFiller struct{ seed, count int }

// beginning is when filled times begin, as rows hold them.
var beginning = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func (f *recordFiller) fill(v reflect.Value, name string) {
	f.count++
	switch at := v.Addr().Interface().(type) {
	case *time.Time:
		*at = beginning.Add(time.Duration(f.count) * time.Hour)
		return
	case *secret.Value:
		*at = secret.New(fmt.Sprint(name, f.seed, "-", f.count))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint(name, f.seed, "-", f.count))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.count + 100*f.seed))
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			f.fill(v.Index(i), name)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, name)
		f.fill(value, name)
		v.SetMapIndex(key, value)
	default:
		panic("storetest: no value for a " + v.Type().String())
	}
}
